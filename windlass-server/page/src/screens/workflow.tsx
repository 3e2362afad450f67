// One workflow in three views over the same data: graph, timeline and table.

import type { Schemas } from "../api/client.ts";
import { send } from "../api/client.ts";
import { isId } from "../api/filter.ts";
import { second, useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { CopyButton, curl, quoted } from "../parts/copy.tsx";
import { ActDialog, dialog, tell } from "../parts/dialog.tsx";
import { WorkflowGraph } from "../parts/graph.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { StateBadge, StateBar, sum, WorkflowBadge } from "../parts/state.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { href, query, withQuery } from "../router.ts";
import { DEAD, ENDED, number, span, stateWord } from "../words.ts";

type Workflow = Schemas["Workflow"];
type Node = Schemas["Node"];

/** As many rows as a browser draws without a pause. */
const [ROWS_MAX, LANES_MAX] = [1000, 200];

function Steps({ graph }: { graph: Schemas["Graph"] }) {
  const waits = new Map<string, number>();
  for (const edge of graph.edges) waits.set(edge.to, (waits.get(edge.to) ?? 0) + 1);
  return (
    <Table
      caption="Steps of the workflow"
      rows={graph.nodes.slice(0, ROWS_MAX)}
      id={(step) => step.id}
      empty={<Empty says="Its jobs are gone: retention has removed them." />}
      columns={[
        { name: "State", lead: true, narrow: true, cell: (step) => <StateBadge state={step.state} /> },
        {
          name: "Step",
          lead: true,
          cell: (step) => (
            <a href={href(`/jobs/${step.id}`)}>
              <Text>{step.type}</Text>
            </a>
          ),
        },
        { name: "Waits for", narrow: true, number: true, cell: (step) => number(waits.get(step.id) ?? 0) },
        { name: "Tries", narrow: true, number: true, cell: (step) => step.attempt },
        {
          name: "Ran",
          narrow: true,
          number: true,
          cell: (step) =>
            step.started_at
              ? span((step.ended_at ? Date.parse(step.ended_at) : second.value) - Date.parse(step.started_at))
              : "–",
        },
        { name: "Ended", narrow: true, cell: (step) => <When at={step.ended_at} /> },
      ]}
      foot={graph.nodes.length > ROWS_MAX ? `The first ${number(ROWS_MAX)} steps.` : undefined}
    />
  );
}

/** One row a step: a light band while it waited, a full one while it ran. */
function Timeline({ steps }: { steps: Node[] }) {
  const until = second.value;
  const rows = steps
    .map((step) => {
      const from = Date.parse(step.created_at);
      const began = step.started_at ? Date.parse(step.started_at) : undefined;
      const to = step.ended_at ? Date.parse(step.ended_at) : until;
      return { step, from, began, to: Math.max(to, from) };
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
        {rows.slice(0, LANES_MAX).map(({ step, from, began, to }) => (
          <li key={step.id}>
            <a href={href(`/jobs/${step.id}`)}>
              <Text>{step.type}</Text>
            </a>
            <span
              class="lane"
              title={`${stateWord[step.state]}; waited ${span((began ?? to) - from)}${began ? `, ran ${span(to - began)}` : ""}`}
            >
              <span class={`wait ${step.state}`} style={{ left: part(from), width: size(from, began ?? to) }} />
              {began ? (
                <span class={`ran ${step.state}`} style={{ left: part(began), width: size(began, to) }} />
              ) : null}
            </span>
            <span class="small muted number">{began ? span(to - began) : "–"}</span>
          </li>
        ))}
      </ol>
      {rows.length > LANES_MAX ? <p class="small muted">The first {LANES_MAX} steps; the table has more.</p> : null}
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
  const topic = isId(name) ? `workflow:${name}` : "";
  const found = useResource<Workflow>(`/v1/workflows/${encodeURIComponent(name)}`, 1500, topic);
  const tab = query.value.get("tab") ?? "";
  const every = found.data?.state === "running" ? 2000 : 10_000;
  const graph = useResource<Schemas["Graph"]>(found.data ? `/v1/workflows/${found.data.id}/graph` : null, every, topic);
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
            <Loaded of={graph}>
              {(data) => (
                <>
                  {data.truncated ? (
                    <p class="notice warn">It has more steps than are shown: these are the newest.</p>
                  ) : null}
                  {tab === "" ? <WorkflowGraph graph={data} workflow={flow.id} /> : null}
                  {tab === "timeline" ? <Timeline steps={data.nodes} /> : null}
                  {tab === "table" ? <Steps graph={data} /> : null}
                </>
              )}
            </Loaded>
          </>
        )}
      </Loaded>
    </>
  );
}
