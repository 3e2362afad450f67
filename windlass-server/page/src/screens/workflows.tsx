// Workflows: how far each is; and one as a graph, a timeline and a table over the same data.

import type { Job, Schemas } from "../api/client.ts";
import { send } from "../api/client.ts";
import { second, useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { CopyButton, curl, quoted } from "../parts/copy.tsx";
import { ActDialog, dialog, tell } from "../parts/dialog.tsx";
import { WorkflowGraph } from "../parts/graph.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { Pager } from "../parts/pager.tsx";
import { StateBadge, StateBar, sum, WorkflowBadge } from "../parts/state.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { href, query, withQuery } from "../router.ts";
import { DEAD, ENDED, number, span, stateWord } from "../words.ts";

type Workflow = Schemas["Workflow"];

const JOBS_MAX = 1000;

export function WorkflowsScreen() {
  const cursor = query.value.get("cursor");
  const page = useResource<Schemas["WorkflowPage"]>(
    `/v1/workflows?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`,
    3000,
  );
  return (
    <>
      <div class="head">
        <h1>Workflows</h1>
      </div>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="Workflows, newest first"
            steady
            rows={data.items}
            id={(flow) => flow.id}
            empty={
              <Empty
                says="No workflows yet. A workflow is a graph of jobs that is submitted as one."
                command="windlass workflows --help"
              />
            }
            columns={[
              { name: "State", lead: true, narrow: true, cell: (flow) => <WorkflowBadge state={flow.state} /> },
              {
                name: "Workflow",
                lead: true,
                cell: (flow) => (
                  <a href={href(`/workflows/${flow.id}`)}>
                    <Text>{flow.name}</Text>
                  </a>
                ),
              },
              { name: "Steps", cell: (flow) => <StateBar states={flow.states} /> },
              {
                name: "Done",
                narrow: true,
                number: true,
                cell: (flow) =>
                  `${number(sum(flow.states, ENDED) + flow.pruned)} of ${number(sum(flow.states) + flow.pruned)}`,
              },
              { name: "Begun", narrow: true, sort: "descending", cell: (flow) => <When at={flow.created_at} /> },
            ]}
            foot={<Pager next={data.next_cursor} />}
          />
        )}
      </Loaded>
    </>
  );
}

function Steps({ jobs, more }: { jobs: Job[]; more: boolean }) {
  return (
    <Table
      caption="Steps of the workflow"
      rows={jobs}
      id={(job) => job.id}
      empty={<Empty says="Its jobs are gone: retention has removed them." />}
      columns={[
        { name: "State", lead: true, narrow: true, cell: (job) => <StateBadge state={job.state} /> },
        {
          name: "Step",
          lead: true,
          cell: (job) => (
            <a href={href(`/jobs/${job.id}`)}>
              <Text>{job.type}</Text>
            </a>
          ),
        },
        { name: "Waits for", narrow: true, number: true, cell: (job) => number(job.depends_on?.length ?? 0) },
        { name: "Tries", narrow: true, number: true, cell: (job) => job.attempt },
        {
          name: "Ran",
          narrow: true,
          number: true,
          cell: (job) =>
            job.started_at
              ? span(Date.parse(job.completed_at ?? new Date(second.value).toISOString()) - Date.parse(job.started_at))
              : "–",
        },
        { name: "Ended", narrow: true, cell: (job) => <When at={job.completed_at} /> },
      ]}
      foot={more ? `The first ${number(JOBS_MAX)} steps.` : undefined}
    />
  );
}

/** One row a step: a light band while it waited, a full one while it ran. */
function Timeline({ jobs }: { jobs: Job[] }) {
  const until = second.value;
  const rows = jobs
    .map((job) => {
      const from = Date.parse(job.created_at);
      const began = job.started_at ? Date.parse(job.started_at) : undefined;
      const to = job.completed_at ? Date.parse(job.completed_at) : until;
      return { job, from, began, to: Math.max(to, from) };
    })
    .sort((one, other) => (one.began ?? one.to) - (other.began ?? other.to));
  const start = Math.min(...rows.map((row) => row.from));
  const end = Math.max(start + 1, ...rows.map((row) => row.to));
  const part = (time: number) => `${((time - start) / (end - start)) * 100}%`;
  const size = (one: number, other: number) => `${Math.max(0.3, ((other - one) / (end - start)) * 100)}%`;
  return (
    <figure class="card timeline">
      <figcaption class="small muted">{span(end - start)} in all. Light: waited; full: ran, its last try.</figcaption>
      <ol>
        {rows.slice(0, 200).map(({ job, from, began, to }) => (
          <li key={job.id}>
            <a href={href(`/jobs/${job.id}`)}>
              <Text>{job.type}</Text>
            </a>
            <span
              class="lane"
              title={`${stateWord[job.state]}; waited ${span((began ?? to) - from)}${began ? `, ran ${span(to - began)}` : ""}`}
            >
              <span class={`wait ${job.state}`} style={{ left: part(from), width: size(from, began ?? to) }} />
              {began ? <span class={`ran ${job.state}`} style={{ left: part(began), width: size(began, to) }} /> : null}
            </span>
            <span class="small muted number">{began ? span(to - began) : "–"}</span>
          </li>
        ))}
      </ol>
      {rows.length > 200 ? <p class="small muted">The first 200 steps; the table has more.</p> : null}
    </figure>
  );
}

function Acts({ flow, reload }: { flow: Workflow; reload: () => void }) {
  if (!mayOperate()) return null;
  const dead = sum(flow.states, DEAD);
  const act = (verb: "cancel" | "requeue", title: string, says: string, past: string) => () => {
    dialog.value = (
      <ActDialog
        title={title}
        says={says}
        verb={title}
        risky={verb === "cancel"}
        reason="wanted"
        lines={(reason) => [
          `windlass workflows ${verb} ${flow.id}${reason ? ` --reason ${quoted(reason)}` : ""}`,
          curl("POST", `/v1/workflows/${flow.id}/${verb}`, { reason }),
        ]}
        act={async (reason) => {
          const { changed } = await send<Schemas["Changed"]>("POST", `/v1/workflows/${flow.id}/${verb}`, { reason });
          reload();
          tell(`${number(changed)} ${past}`);
        }}
      />
    );
  };
  return (
    <div class="actions">
      {dead > 0 ? (
        <button
          type="button"
          class="button primary"
          onClick={act(
            "requeue",
            "Requeue what died",
            `${number(dead)} dead steps go back to their queues, with those that died because of them.`,
            "requeued",
          )}
        >
          Requeue what died
        </button>
      ) : null}
      {flow.state === "running" ? (
        <button
          type="button"
          class="button risky"
          onClick={act(
            "cancel",
            "Cancel the workflow",
            "Steps that wait end at once; those that run are asked to stop.",
            "cancelled",
          )}
        >
          Cancel
        </button>
      ) : null}
    </div>
  );
}

const TABS: [string, string][] = [
  ["", "Graph"],
  ["timeline", "Timeline"],
  ["table", "Table"],
];

export function WorkflowScreen({ name }: { name: string }) {
  const found = useResource<Workflow>(`/v1/workflows/${encodeURIComponent(name)}`, 1500);
  const tab = query.value.get("tab") ?? "";
  const every = found.data?.state === "running" ? 2000 : 10_000;
  const graph = useResource<Schemas["Graph"]>(
    found.data && tab === "" ? `/v1/workflows/${found.data.id}/graph` : null,
    every,
  );
  const jobs = useResource<Schemas["JobPage"]>(
    found.data && tab !== "" ? `/v1/jobs?workflow=${found.data.id}&limit=${JOBS_MAX}&payloads=false` : null,
    every,
  );
  return (
    <>
      <p class="crumbs">
        <a href={href("/workflows")}>Workflows</a> / <code>{name}</code> <CopyButton text={name} what="id" />
      </p>
      <Loaded of={found}>
        {(flow) => (
          <>
            <div class="head">
              <h1>
                <Text>{flow.name}</Text>
              </h1>
              <WorkflowBadge state={flow.state} large />
              <span class="muted">
                {number(sum(flow.states, ENDED) + flow.pruned)} of {number(sum(flow.states) + flow.pruned)} steps ended;
                begun <When at={flow.created_at} />
              </span>
              <Acts flow={flow} reload={found.reload} />
            </div>
            <StateBar states={flow.states} />
            <nav class="tabs" aria-label="Views of the workflow">
              {TABS.map(([own, word]) => (
                <a
                  key={own}
                  href={href(withQuery({ tab: own || null }))}
                  aria-current={tab === own ? "true" : undefined}
                >
                  {word}
                </a>
              ))}
            </nav>
            {tab === "" ? (
              <Loaded of={graph}>
                {(data) => (
                  <>
                    {data.truncated ? (
                      <p class="notice warn">Too many steps to draw all of them; the table has more.</p>
                    ) : null}
                    <WorkflowGraph graph={data} workflow={flow.id} />
                  </>
                )}
              </Loaded>
            ) : (
              <Loaded of={jobs}>
                {(data) => {
                  const rows = [...data.items].reverse();
                  return tab === "timeline" ? (
                    <Timeline jobs={rows} />
                  ) : (
                    <Steps jobs={rows} more={Boolean(data.next_cursor)} />
                  );
                }}
              </Loaded>
            )}
          </>
        )}
      </Loaded>
    </>
  );
}
