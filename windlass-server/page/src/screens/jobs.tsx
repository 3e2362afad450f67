// Jobs: found by conditions, newest first, a page at a time.
//
// Rows stay where they are: those in view change in place, new ones are announced and come when asked for.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Job, type Schemas, send } from "../api/client.ts";
import { conditions } from "../api/filter.ts";
import { useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { bulk } from "../parts/bulk.tsx";
import { copy, say } from "../parts/copy.tsx";
import { Search, Tabs } from "../parts/job-search.tsx";
import { cursorRow, own } from "../parts/keys.ts";
import { Empty, Loaded } from "../parts/notice.tsx";
import { StateBadge } from "../parts/state.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { go, href, path, query, withQuery } from "../router.ts";
import { counted, ENDED } from "../words.ts";

const SIZES = [25, 50, 100, 200];
const EVERY_MS = 2000;

function listPath(asked: URLSearchParams): string {
  const sent = conditions(asked);
  sent.set("limit", asked.get("limit") ?? "50");
  sent.set("payloads", "false");
  const cursor = asked.get("cursor");
  if (cursor) sent.set("cursor", cursor);
  return `/v1/jobs?${sent}`;
}

function whatNow(job: Job) {
  if (job.state === "running" && job.progress)
    return (
      <span>
        {Math.round(job.progress.fraction * 100)} % <Text>{job.progress.message ?? ""}</Text>
      </span>
    );
  if (job.state === "running") return <Text>{`on ${job.lease?.worker ?? "?"}`}</Text>;
  if (job.failure && job.state !== "completed")
    return (
      <span class="clip" title={job.failure.message}>
        {job.failure.code ? (
          <code>
            <Text>{job.failure.code}</Text>
          </code>
        ) : null}{" "}
        <Text>{job.failure.message.slice(0, 300)}</Text>
      </span>
    );
  if (job.run_at && !ENDED.includes(job.state))
    return (
      <span>
        runs <When at={job.run_at} />
      </span>
    );
  return null;
}

const COLUMNS: Column<Job>[] = [
  { name: "State", narrow: true, cell: (job) => <StateBadge state={job.state} /> },
  {
    name: "Job",
    narrow: true,
    cell: (job) => (
      <span class="two-lines">
        <a href={href(`/jobs/${job.id}`)}>
          <Text>{job.type}</Text>
        </a>
        <code class="small muted" title={job.id}>
          {job.id.slice(0, 8)}
        </code>
      </span>
    ),
  },
  {
    name: "Queue",
    narrow: true,
    cell: (job) => (
      <a href={href(`/jobs?queue=${encodeURIComponent(job.queue ?? "")}`)}>
        <Text>{job.queue ?? ""}</Text>
      </a>
    ),
  },
  { name: "What", cell: whatNow },
  {
    name: "Tries",
    narrow: true,
    number: true,
    cell: (job) => `${job.attempt} of ${job.max_attempts}`,
  },
  { name: "Submitted", narrow: true, sort: "descending", cell: (job) => <When at={job.created_at} /> },
  { name: "Ended", narrow: true, cell: (job) => <When at={job.completed_at} /> },
];

/** The rows in view: those that came first stay, in the freshest form that is known. */
function useRows(at: string, page: Schemas["JobPage"] | undefined) {
  const view = useRef<{ at: string; rows: Job[] }>({ at: "", rows: [] });
  const [, redraw] = useState(0);
  if (view.current.at !== at) view.current = { at: "", rows: [] };
  if (page && view.current.at === "") view.current = { at, rows: page.items };
  const fresh = new Map(page?.items.map((job) => [job.id, job]));
  view.current.rows = view.current.rows.map((job) => fresh.get(job.id) ?? job);
  const missing = view.current.rows.filter((job) => !fresh.has(job.id)).map((job) => job.id);
  useEffect(() => {
    if (!page || missing.length === 0) return;
    let gone = false;
    send<Schemas["FoundJobs"]>("POST", "/v1/jobs/find?payloads=false", { ids: missing })
      .then(({ items }) => {
        if (gone) return;
        const found = new Map(items.filter((job) => job !== null).map((job) => [job!.id, job as Job]));
        view.current.rows = view.current.rows.map((job) => found.get(job.id) ?? job);
        redraw((count) => count + 1);
      })
      .catch(() => {});
    return () => {
      gone = true;
    };
  }, [page]);
  const shown = new Set(view.current.rows.map((job) => job.id));
  const added = page && view.current.at !== "" ? page.items.filter((job) => !shown.has(job.id)).length : 0;
  const show = () => {
    view.current = { at: "", rows: [] };
    redraw((count) => count + 1);
  };
  return { rows: view.current.rows, added, show };
}

function usePicks(rows: Job[]) {
  const [picked, setPicked] = useState<Set<string>>(new Set());
  const last = useRef("");
  const pick = (id: string, range: boolean) => {
    const ids = rows.map((job) => job.id);
    const [from, to] = [ids.indexOf(last.current), ids.indexOf(id)];
    last.current = id;
    // Keys may come faster than the screen is drawn, so each goes by what the one before has left.
    setPicked((before) => {
      const next = new Set(before);
      if (range && from >= 0) for (const one of ids.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(one);
      else if (!next.delete(id)) next.add(id);
      return next;
    });
  };
  const pickAll = (all: boolean) => setPicked(all ? new Set(rows.map((job) => job.id)) : new Set());
  return { picked, pick, pickAll };
}

function List() {
  const asked = query.value;
  const at = listPath(asked);
  const page = useResource<Schemas["JobPage"]>(at, EVERY_MS);
  const { rows, added, show } = useRows(at, page.data);
  const { picked, pick, pickAll } = usePicks(rows);
  const operator = mayOperate();
  const chosen = useMemo(() => rows.filter((job) => picked.has(job.id)), [rows, picked]);
  const actOn = (action: Schemas["Action"]) => {
    const row = rows.find((job) => job.id === cursorRow.value);
    const jobs = chosen.length > 0 ? chosen : row ? [row] : [];
    if (jobs.length > 0 && operator) bulk({ action, jobs });
  };
  useEffect(() => {
    own.value = {
      x: (event) => cursorRow.value && pick(cursorRow.value, event.shiftKey),
      X: () => cursorRow.value && pick(cursorRow.value, true),
      r: () => actOn("requeue"),
      c: () => actOn("cancel"),
      y: () => {
        if (cursorRow.value) void copy(cursorRow.value).then(() => say("id copied"));
      },
    };
    return () => {
      own.value = {};
    };
  });
  useEffect(() => {
    if (added > 0) say(`${added} new`);
  }, [added > 0]);
  const limit = asked.get("limit") ?? "50";
  const filtered = conditions(asked).toString() !== "";
  const next = page.data?.next_cursor;
  return (
    <Loaded of={page}>
      {(data) => (
        <>
          {operator && rows.length > 0 && (chosen.length > 0 || filtered) ? (
            <div class="row" role="toolbar" aria-label="Acts on jobs">
              {chosen.length > 0 ? <strong>{counted(chosen.length, "job")} picked</strong> : null}
              {chosen.length > 0 ? (
                <>
                  <button type="button" class="button" onClick={() => actOn("requeue")}>
                    Requeue
                  </button>
                  <button type="button" class="button" onClick={() => actOn("cancel")}>
                    Cancel
                  </button>
                  <button type="button" class="button" onClick={() => actOn("dead_letter")}>
                    Dead-letter
                  </button>
                  <button type="button" class="button risky" onClick={() => actOn("delete")}>
                    Delete
                  </button>
                </>
              ) : filtered ? (
                <button type="button" class="button" onClick={() => bulk({ query: conditions(asked) })}>
                  Act on all that match…
                </button>
              ) : null}
            </div>
          ) : null}
          {added > 0 && !asked.get("cursor") ? (
            <button type="button" class="button" onClick={show}>
              {added >= data.items.length ? `${added} or more new` : `${added} new`} · show
            </button>
          ) : null}
          <Table
            caption="Jobs, newest first"
            columns={COLUMNS}
            rows={rows}
            id={(job) => job.id}
            {...(operator ? { picked, pick, pickAll } : {})}
            empty={
              filtered ? (
                <Empty says="No job matches.">
                  <p>
                    Ended jobs are kept for a while only; <a href={href("/server")}>see for how long</a>.
                  </p>
                </Empty>
              ) : (
                <Empty
                  says="No jobs yet. What is submitted stands here."
                  command={`windlass enqueue hello --payload '{"to":"you"}'`}
                />
              )
            }
            foot={
              <>
                {asked.get("cursor") ? (
                  <a class="button tiny" href={href(withQuery({ cursor: null }))}>
                    Newest
                  </a>
                ) : null}
                {next ? (
                  <a class="button tiny" href={href(withQuery({ cursor: next }))}>
                    Older
                  </a>
                ) : (
                  <span>The list ends here.</span>
                )}
                <label class="row push">
                  Rows
                  <select
                    class="tiny"
                    style={{ width: "auto" }}
                    value={limit}
                    onChange={(event) => go(withQuery({ limit: event.currentTarget.value, cursor: null }))}
                  >
                    {SIZES.map((size) => (
                      <option key={size} value={size}>
                        {size}
                      </option>
                    ))}
                  </select>
                </label>
              </>
            }
          />
          {rows.length === 0 && next ? (
            <p class="notice">
              Nothing on this page, but the search went only so far.{" "}
              <a href={href(withQuery({ cursor: next }))}>Look further back</a>
            </p>
          ) : null}
        </>
      )}
    </Loaded>
  );
}

export function JobsScreen() {
  return (
    <>
      <div class="head">
        <h1>Jobs</h1>
      </div>
      <Search />
      <Tabs />
      {path.value === "/jobs" && !query.value.has("find") ? <List key={listPath(query.value)} /> : null}
    </>
  );
}
