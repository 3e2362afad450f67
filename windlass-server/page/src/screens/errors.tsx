// Errors: is it one thing or many? Dead jobs in groups by what they died of, and one group, to be acted on as a whole.

import type { Job, Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { bulk } from "../parts/bulk.tsx";
import { JOB, STATE, WhatNow } from "../parts/job-columns.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { Pager } from "../parts/pager.tsx";
import { Pattern } from "../parts/pattern.tsx";
import { Spark, Trend } from "../parts/spark.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { Moment, When } from "../parts/time.tsx";
import { go, href, query, withQuery } from "../router.ts";
import { counted, number } from "../words.ts";

type Group = Schemas["ErrorGroup"];

const ORDERS: [name: string, word: string, before: (one: Group, other: Group) => number][] = [
  ["", "last seen first", (one, other) => Date.parse(other.last_at) - Date.parse(one.last_at)],
  ["count", "largest first", (one, other) => other.count - one.count],
  ["new", "newest group first", (one, other) => Date.parse(other.first_at) - Date.parse(one.first_at)],
];

function countWord(group: Group): string {
  return `${number(group.count)}${group.capped ? "+" : ""}`;
}

function jobsOf(group: Group, retrying: boolean): string {
  const asked: Record<string, string> = retrying
    ? { state: "retrying", type: group.type, ...(group.code ? { code: group.code } : {}) }
    : { fingerprint: group.fingerprint };
  return `/jobs?${new URLSearchParams(asked)}`;
}

function groupPath(group: Group): string {
  return `/errors/${group.fingerprint}`;
}

function columns(retrying: boolean): Column<Group>[] {
  return [
    {
      name: "Error",
      lead: true,
      cell: (group) => (
        <span class="two-lines">
          <span class="row close-row">
            <strong>
              <Text>{group.type}</Text>
            </strong>
            <span class="small muted">{group.category}</span>
            {group.code ? (
              <code class="small">
                <Text>{group.code}</Text>
              </code>
            ) : null}
          </span>
          <a class="clip pattern" href={href(retrying ? jobsOf(group, true) : groupPath(group))}>
            <Pattern text={group.pattern} />
          </a>
        </span>
      ),
    },
    {
      name: "Jobs",
      narrow: true,
      number: true,
      cell: (group) => <a href={href(jobsOf(group, retrying))}>{countWord(group)}</a>,
    },
    { name: "Last 10 min", narrow: true, number: true, cell: (group) => number(group.recent) },
    { name: "Last day", narrow: true, cell: (group) => <Spark values={group.trend} /> },
    { name: "First", narrow: true, cell: (group) => <When at={group.first_at} /> },
    { name: "Last", narrow: true, cell: (group) => <When at={group.last_at} /> },
    {
      name: "Queues",
      cell: (group) => (
        <span class="row close-row">
          {group.queues.slice(0, 3).map((queue) => (
            <a key={queue} class="pill" href={href(`/queues/${encodeURIComponent(queue)}`)}>
              <Text>{queue}</Text>
            </a>
          ))}
          {group.queues.length > 3 ? <span class="small muted">and {group.queues.length - 3} more</span> : null}
        </span>
      ),
    },
  ];
}

export function ErrorsScreen() {
  const asked = query.value;
  const retrying = asked.get("state") === "retrying";
  const sent = new URLSearchParams();
  for (const name of ["state", "queue", "type", "cursor"]) {
    const value = asked.get(name);
    if (value) sent.set(name, value);
  }
  const page = useResource<Schemas["ErrorPage"]>(`/v1/errors?${sent}`, 5000);
  const order = ORDERS.find(([name]) => name === (asked.get("order") ?? "")) ?? ORDERS[0]!;
  return (
    <>
      <div class="head">
        <h1>Errors</h1>
        <label class="row push">
          <span class="small muted">Order</span>
          <select
            class="tiny"
            value={order[0]}
            onChange={(event) => go(withQuery({ order: event.currentTarget.value || null }))}
          >
            {ORDERS.map(([name, word]) => (
              <option key={name} value={name}>
                {word}
              </option>
            ))}
          </select>
        </label>
      </div>
      <nav class="tabs" aria-label="Dead or still tried">
        <a href={href(withQuery({ state: null, cursor: null }))} aria-current={retrying ? undefined : "true"}>
          Dead
        </a>
        <a href={href(withQuery({ state: "retrying", cursor: null }))} aria-current={retrying ? "true" : undefined}>
          Still being tried
        </a>
      </nav>
      {asked.get("queue") || asked.get("type") ? (
        <p class="notice">
          Only {asked.get("queue") ? `queue ${asked.get("queue")}` : ""}{" "}
          {asked.get("type") ? `type ${asked.get("type")}` : ""}
          <a href={href(withQuery({ queue: null, type: null, cursor: null }))}>Show all</a>
        </p>
      ) : null}
      <Loaded of={page}>
        {(data) => (
          <Table
            caption={
              retrying
                ? "Failures of jobs that are tried again, in groups"
                : "Dead jobs, in groups by what they died of"
            }
            steady
            rows={[...data.items].sort(order[2])}
            id={(group) => group.fingerprint}
            empty={
              <Empty
                says={
                  retrying
                    ? "No job is between two tries now."
                    : "No dead jobs. Those that fail for good stand here, those of one cause together."
                }
              />
            }
            columns={columns(retrying)}
            foot={
              <>
                <Pager next={data.next_cursor} first="From the first" more="More groups" />
                {retrying && data.looked !== undefined && data.looked !== null ? (
                  <span>
                    {counted(data.looked, "job")} looked at{data.capped ? "; there are more" : ""}.
                  </span>
                ) : null}
                {data.next_cursor ? <span>Ordered within these {data.items.length}.</span> : null}
              </>
            }
          />
        )}
      </Loaded>
    </>
  );
}

function Jobs({ fingerprint }: { fingerprint: string }) {
  const asked = new URLSearchParams({ fingerprint, limit: "20", payloads: "false" });
  const page = useResource<Schemas["JobPage"]>(`/v1/jobs?${asked}`, 3000);
  return (
    <section class="stack close">
      <h2>Its newest jobs</h2>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="Newest jobs of the group"
            steady
            rows={data.items}
            id={(job: Job) => job.id}
            empty={<Empty says="None is left." />}
            columns={[
              STATE,
              JOB,
              { name: "What", cell: (job) => <WhatNow job={job} /> },
              { name: "Ended", narrow: true, cell: (job) => <When at={job.completed_at} /> },
            ]}
            foot={<a href={href(`/jobs?fingerprint=${fingerprint}`)}>All its jobs</a>}
          />
        )}
      </Loaded>
    </section>
  );
}

/** What the newest job of the group says was behind its failure. */
function Causes({ job }: { job: string }) {
  const found = useResource<Job>(`/v1/jobs/${job}?payloads=false`);
  const causes = found.data?.failure?.causes ?? [];
  if (causes.length === 0) return null;
  return (
    <section class="card">
      <h2>Causes</h2>
      <ol class="plain-list small">
        {causes.map((cause, at) => (
          <li key={at}>
            because: <Text>{cause}</Text>
          </li>
        ))}
      </ol>
    </section>
  );
}

function One({ group }: { group: Group }) {
  const conditions = () => new URLSearchParams({ fingerprint: group.fingerprint });
  return (
    <>
      <div class="head">
        <h1>
          <Text>{group.type}</Text>
        </h1>
        <strong class="danger">{group.category}</strong>
        {group.code ? (
          <code>
            <Text>{group.code}</Text>
          </code>
        ) : null}
        {mayOperate() ? (
          <div class="actions">
            <button
              type="button"
              class="button primary"
              onClick={() => bulk({ action: "requeue", query: conditions(), title: "Requeue the group" })}
            >
              Requeue the group
            </button>
            <button
              type="button"
              class="button"
              onClick={() => bulk({ action: "dead_letter", query: conditions(), title: "Dead-letter the group" })}
            >
              Dead-letter
            </button>
            <button
              type="button"
              class="button risky"
              onClick={() => bulk({ action: "delete", query: conditions(), title: "Delete the group" })}
            >
              Delete
            </button>
          </div>
        ) : null}
      </div>
      <p class="failure pattern">
        <Pattern text={group.pattern} />
      </p>
      <div class="figures">
        <a href={href(`/jobs?fingerprint=${group.fingerprint}`)}>
          <span class="name">Jobs</span>
          <span class="value">{countWord(group)}</span>
        </a>
        <div>
          <span class="name">In the last 10 min</span>
          <span class="value">{number(group.recent)}</span>
        </div>
        <div>
          <span class="name">First</span>
          <span>
            <Moment at={group.first_at} />
          </span>
        </div>
        <div>
          <span class="name">Last</span>
          <span>
            <Moment at={group.last_at} />
          </span>
        </div>
      </div>
      {group.sample[0] ? <Causes key={group.sample[0]} job={group.sample[0]} /> : null}
      <Trend values={group.trend} />
      <Jobs fingerprint={group.fingerprint} />
    </>
  );
}

export function ErrorScreen({ name }: { name: string }) {
  const page = useResource<Schemas["ErrorPage"]>(`/v1/errors?fingerprint=${encodeURIComponent(name)}`, 3000);
  return (
    <>
      <p class="crumbs">
        <a href={href("/errors")}>Errors</a> / <code>{name}</code>
      </p>
      <Loaded of={page}>
        {(data) => {
          const group = data.items.find((one) => one.fingerprint === name);
          if (group) return <One group={group} />;
          return (
            <>
              <div class="head">
                <h1>Nothing is left of this group</h1>
              </div>
              <p>
                Its jobs were requeued, deleted or pruned. <a href={href("/acts")}>What was done?</a>
              </p>
            </>
          );
        }}
      </Loaded>
    </>
  );
}
