// What people did, and what is under way for them.

import { useState } from "preact/hooks";
import type { Schemas } from "../api/client.ts";
import { send } from "../api/client.ts";
import { isId } from "../api/filter.ts";
import { type Resource, useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { Empty, Loaded } from "../parts/notice.tsx";
import { Pager } from "../parts/pager.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { go, href, query, withQuery } from "../router.ts";
import { number } from "../words.ts";

const OPERATION_STATE: Record<string, string> = {
  running: "running",
  done: "completed",
  failed: "failed",
  stopped: "cancelled",
};

/** What an act was done to: a job or a queue leads there. */
function Target({ text }: { text: string }) {
  const [kind, name] = [text.slice(0, text.indexOf(" ")), text.slice(text.indexOf(" ") + 1)];
  if (isId(text)) return <a href={href(`/jobs/${text}`)}>{text.slice(0, 8)}</a>;
  if (kind === "job" && isId(name)) return <a href={href(`/jobs/${name}`)}>job {name.slice(0, 8)}</a>;
  if (kind === "workflow" && isId(name)) return <a href={href(`/workflows/${name}`)}>workflow {name.slice(0, 8)}</a>;
  if (kind === "queue" || kind === "schedule")
    return (
      <a href={href(`/${kind}s/${encodeURIComponent(name)}`)}>
        <Text>{text}</Text>
      </a>
    );
  const [, queue] = /^(?:key|type) .* of queue (.+)$/s.exec(text) ?? [];
  if (queue)
    return (
      <a href={href(`/queues/${encodeURIComponent(queue)}`)}>
        <Text>{text}</Text>
      </a>
    );
  return <Text>{text}</Text>;
}

const FIELDS: [name: string, word: string, example: string][] = [
  ["by", "Who", "ada"],
  ["act", "Did", "requeue"],
  ["target", "To", "queue mail, or a job's id"],
];

/** By person, act and target. */
function ActsFilter() {
  const [values, setValues] = useState<Record<string, string>>(() => Object.fromEntries(query.value));
  const submit = (event: Event) => {
    event.preventDefault();
    go(
      withQuery({ ...Object.fromEntries(FIELDS.map(([name]) => [name, values[name]?.trim() || null])), cursor: null }),
    );
  };
  return (
    <form class="row filter" onSubmit={submit}>
      {FIELDS.map(([name, word, example]) => (
        <input
          key={name}
          aria-label={word}
          placeholder={`${word}: ${example}`}
          autocomplete="off"
          value={values[name] ?? ""}
          onInput={(event) => setValues({ ...values, [name]: event.currentTarget.value })}
        />
      ))}
      <button type="submit" class="button">
        Find
      </button>
      {FIELDS.some(([name]) => query.value.get(name)) ? (
        <a class="button quiet" href={href("/acts")}>
          Clear
        </a>
      ) : null}
    </form>
  );
}

function Acts() {
  const sent = new URLSearchParams({ limit: "50" });
  for (const name of [...FIELDS.map(([own]) => own), "cursor"]) {
    const value = query.value.get(name);
    if (value) sent.set(name, value);
  }
  const page = useResource<Schemas["ActPage"]>(`/v1/acts?${sent}`, 3000);
  return (
    <>
      <ActsFilter />
      <ActsTable page={page} />
    </>
  );
}

function ActsTable({ page }: { page: Resource<Schemas["ActPage"]> }) {
  return (
    <Loaded of={page}>
      {(data) => (
        <Table
          caption="Acts, newest first"
          steady
          rows={data.items.map((act, place) => ({ ...act, id: `${act.at} ${place}` }))}
          id={(act) => act.id}
          empty={
            <Empty says="Nobody has acted yet. Pausing, requeueing, cancelling and deleting are kept here, with who and why." />
          }
          columns={[
            { name: "When", lead: true, narrow: true, sort: "descending", cell: (act) => <When at={act.at} /> },
            {
              name: "Who",
              narrow: true,
              cell: (act) => (act.by ? <Text>{act.by}</Text> : <span class="muted">unnamed</span>),
            },
            { name: "Did", narrow: true, cell: (act) => <Text>{act.act}</Text> },
            { name: "To", cell: (act) => <Target text={act.target} /> },
            { name: "Changed", narrow: true, number: true, cell: (act) => number(act.changed) },
            { name: "Why", cell: (act) => (act.reason ? <Text>{act.reason}</Text> : null) },
          ]}
          foot={<Pager next={data.next_cursor} />}
        />
      )}
    </Loaded>
  );
}

function Operations() {
  const list = useResource<Schemas["Operations"]>("/v1/operations", 1000);
  return (
    <Loaded of={list}>
      {(data) => (
        <Table
          caption="Operations of this server, newest first"
          steady
          rows={data.items}
          id={(operation) => operation.id}
          empty={<Empty says="No act on many jobs is under way or has ended on this server since it started." />}
          columns={[
            {
              name: "State",
              lead: true,
              narrow: true,
              cell: (operation) => <span class={OPERATION_STATE[operation.state] ?? ""}>{operation.state}</span>,
            },
            {
              name: "Act",
              narrow: true,
              cell: (operation) => `${operation.action.replace("_", "-")}${operation.dry_run ? " (only a look)" : ""}`,
            },
            { name: "Changed", narrow: true, number: true, cell: (operation) => number(operation.changed) },
            { name: "Refused", narrow: true, number: true, cell: (operation) => number(operation.refused.length) },
            {
              name: "What",
              cell: (operation) => operation.problem?.detail ?? operation.refused[0]?.problem.detail ?? null,
            },
            { name: "Began", narrow: true, cell: (operation) => <When at={operation.started_at} /> },
            { name: "Ended", narrow: true, cell: (operation) => <When at={operation.ended_at} /> },
            {
              name: "Stop",
              narrow: true,
              cell: (operation) =>
                operation.state === "running" && mayOperate() ? (
                  <button
                    type="button"
                    class="button tiny"
                    onClick={() => void send("DELETE", `/v1/operations/${operation.id}`).then(list.reload)}
                  >
                    Stop
                  </button>
                ) : null,
            },
          ]}
          foot="An operation ends with its server; what it has changed stays changed and stands in the record."
        />
      )}
    </Loaded>
  );
}

export function ActsScreen() {
  const tab = query.value.get("tab") ?? "";
  return (
    <>
      <div class="head">
        <h1>Acts</h1>
      </div>
      <nav class="tabs" aria-label="Acts and operations">
        <a href={href("/acts")} aria-current={tab === "" ? "true" : undefined}>
          The record
        </a>
        <a href={href("/acts?tab=operations")} aria-current={tab === "operations" ? "true" : undefined}>
          Operations
        </a>
      </nav>
      {tab === "operations" ? <Operations /> : <Acts key={query.value.toString()} />}
    </>
  );
}
