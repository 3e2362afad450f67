// Jobs: found by conditions, a page at a time.
//
// Rows stay where they are: those in view change in place, new ones are announced and come when asked for.

import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import type { Job, Schemas, State } from "../api/client.ts";
import { conditions } from "../api/filter.ts";
import { useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { bulk } from "../parts/bulk.tsx";
import { copy, say } from "../parts/copy.tsx";
import { CHOICE, JOB, STATE } from "../parts/job-columns.tsx";
import { JobMenus } from "../parts/job-menus.tsx";
import { usePicks, useRows } from "../parts/job-rows.ts";
import { Search, Tabs } from "../parts/job-search.tsx";
import { hidden } from "../parts/kept.ts";
import { cursorRow, own } from "../parts/keys.ts";
import { Empty, Loaded } from "../parts/notice.tsx";
import { Pager } from "../parts/pager.tsx";
import { Table } from "../parts/table.tsx";
import { exact } from "../parts/time.tsx";
import { useWebhookColumns, WEBHOOKS } from "../parts/webhooks.tsx";
import { go, href, path, query, withQuery } from "../router.ts";
import { counted, ENDED } from "../words.ts";

const EVERY_MS = 2000;

function listPath(asked: URLSearchParams): string {
  const sent = conditions(asked);
  sent.set("limit", asked.get("limit") ?? "50");
  // What a delivery tells of stands in its payload.
  sent.set("payloads", String(asked.get("queue") === WEBHOOKS));
  const order = orderOf(asked);
  if (order !== "newest") sent.set("order", order);
  const cursor = asked.get("cursor");
  if (cursor) sent.set("cursor", cursor);
  return `/v1/jobs?${sent}`;
}

/** The orders that a list can have, by the states and the queue it is of: each goes by an index that the store has. */
export function ordersFor(asked: URLSearchParams): [order: string, word: string][] {
  const state = asked.get("state") ?? "";
  const found: [string, string][] = [["newest", "newest first"]];
  if (ENDED.includes(state as State)) found.unshift(["ended", "last ended first"]);
  if (state === "delayed" || state === "retrying") found.unshift(["due", "soonest first"]);
  if (state === "scheduled" && asked.get("queue")) found.unshift(["claim", "next up: as they will be claimed"]);
  return found;
}

/** The order that was asked for, or the one that fits best. */
function orderOf(asked: URLSearchParams): string {
  const orders = ordersFor(asked);
  const wanted = asked.get("order");
  return orders.find(([name]) => name === wanted)?.[0] ?? orders[0]![0];
}

function Order() {
  const orders = ordersFor(query.value);
  if (orders.length === 1) return <span class="small muted">Newest first</span>;
  return (
    <label class="row small muted">
      Order
      <select
        class="tiny"
        value={orderOf(query.value)}
        onChange={(event) => go(withQuery({ order: event.currentTarget.value, cursor: null }))}
      >
        {orders.map(([name, word]) => (
          <option key={name} value={name}>
            {word}
          </option>
        ))}
      </select>
    </label>
  );
}

function NoJobs({ filtered }: { filtered: boolean }) {
  return filtered ? (
    <Empty says="No job matches.">
      {query.value.get("text") ? (
        <p>
          Is it an idempotency key?{" "}
          <a href={href(`/jobs?${new URLSearchParams({ key: query.value.get("text") ?? "" })}`)}>
            Look for the job with this key
          </a>
        </p>
      ) : null}
      <p>
        Ended jobs are kept for a while only; <a href={href("/server")}>see for how long</a>.
      </p>
    </Empty>
  ) : (
    <Empty
      says="No jobs yet. What is submitted stands here."
      command={`windlass enqueue hello --payload '{"to":"you"}'`}
    />
  );
}

interface ActsProps {
  chosen: Job[];
  filtered: boolean;
  actOn: (action: Schemas["Action"]) => void;
}

function Acts({ chosen, filtered, actOn }: ActsProps) {
  if (chosen.length === 0)
    return filtered ? (
      <button type="button" class="button tiny" onClick={() => bulk({ query: conditions(query.value) })}>
        Act on all that match…
      </button>
    ) : null;
  return (
    <>
      <strong>{counted(chosen.length, "job")} picked</strong>
      <button type="button" class="button tiny" onClick={() => actOn("requeue")}>
        Requeue
      </button>
      <button type="button" class="button tiny" onClick={() => actOn("cancel")}>
        Cancel
      </button>
      <button type="button" class="button tiny" onClick={() => actOn("dead_letter")}>
        Dead-letter
      </button>
      <button type="button" class="button tiny" onClick={() => actOn("edit")}>
        Edit
      </button>
      <button type="button" class="button tiny risky" onClick={() => actOn("delete")}>
        Delete
      </button>
    </>
  );
}

function List() {
  const asked = query.value;
  const at = listPath(asked);
  const page = useResource<Schemas["JobPage"]>(at, EVERY_MS, "lanes");
  const { rows, added, show } = useRows(at, page.data);
  const { picked, pick, pickAll } = usePicks(rows);
  const operator = mayOperate();
  const chosen = useMemo(() => rows.filter((job) => picked.has(job.id)), [rows, picked]);
  const filtered = conditions(asked).toString() !== "";
  const actOn = (action: Schemas["Action"]) => {
    const row = rows.find((job) => job.id === cursorRow.value);
    const jobs = chosen.length > 0 ? chosen : row ? [row] : [];
    if (jobs.length > 0 && operator) bulk({ action, jobs });
  };
  useLayoutEffect(() => {
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
  const next = page.data?.next_cursor;
  const deliveries = asked.get("queue") === WEBHOOKS;
  const deliveryColumns = useWebhookColumns(rows, deliveries);
  const chosenColumns = CHOICE.filter(
    ({ name }) => !hidden.value.includes(name) && !(deliveries && (name === "Queue" || name === "Ran")),
  );
  const columns = [STATE, JOB, ...deliveryColumns, ...chosenColumns];
  return (
    <Loaded of={page}>
      {(data) => (
        <>
          <Table
            caption={`Jobs, ${ordersFor(asked).find(([name]) => name === orderOf(asked))?.[1] ?? ""}`}
            columns={columns}
            rows={rows}
            id={(job) => job.id}
            {...(operator ? { picked, pick, pickAll } : {})}
            head={
              <>
                <div class="row" role="toolbar" aria-label="Acts on jobs">
                  {operator && rows.length > 0 ? <Acts chosen={chosen} filtered={filtered} actOn={actOn} /> : null}
                  {chosen.length === 0 ? <Order /> : null}
                </div>
                {added > 0 && !asked.get("cursor") ? (
                  <button type="button" class="button tiny fresh push" onClick={show}>
                    {added >= data.items.length ? `${added} or more new` : `${added} new`} · show
                  </button>
                ) : null}
              </>
            }
            empty={<NoJobs filtered={filtered} />}
            foot={<Pager next={next} sizes />}
          />
          {next && (data.looked || rows.length === 0) ? (
            <p class="notice">
              {data.looked ? `Looked at ${counted(data.looked.jobs, "job")}` : "The search went only so far"}
              {rows.length > 0 ? `, back to ${exact(Date.parse(rows.at(-1)!.created_at))}` : ""}.{" "}
              <a href={href(withQuery({ cursor: next }))}>Look on</a>
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
        <JobMenus key={query.value.toString()} />
      </div>
      <Search />
      <Tabs />
      {path.value === "/jobs" && !query.value.has("find") ? <List key={listPath(query.value)} /> : null}
    </>
  );
}
