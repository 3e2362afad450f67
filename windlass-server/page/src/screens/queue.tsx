// One queue: what stands in it, what goes through it, who serves it, and what can be done to it.

import { useRef } from "preact/hooks";
import type { Schemas } from "../api/client.ts";
import { part } from "../api/client.ts";
import { useLanes } from "../api/lanes.ts";
import { useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { bulk } from "../parts/bulk.tsx";
import { Charts, useLines } from "../parts/charts.tsx";
import { Command, curl, quoted, Terminal } from "../parts/copy.tsx";
import { FlowFacts, FlowKeys } from "../parts/flow.tsx";
import { LastActs, useActs } from "../parts/last-acts.tsx";
import { NextUp } from "../parts/next-up.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { StateBar, sum } from "../parts/state.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { Draining } from "../parts/worker-acts.tsx";
import { href } from "../router.ts";
import { DEAD, number, STATES, stateWord, WAITING } from "../words.ts";
import { Count, jobsOf, Oldest, PauseButton } from "./queues.tsx";

type Queue = Schemas["Queue"];
type Worker = Schemas["Worker"];

/** The types of its jobs, from the numbers that the store keeps. */
function Types({ queue }: { queue: string }) {
  const lanes = useLanes(3000);
  const own = (lanes.data?.items ?? []).filter((lane) => lane.queue === queue);
  const to = (type: string, states: string[]) => `/jobs?${new URLSearchParams({ state: states.join(), queue, type })}`;
  return (
    <section class="stack close">
      <h2>Types</h2>
      <Table
        caption="Types of jobs in the queue"
        rows={own}
        id={(lane) => lane.type}
        empty={<Empty says="No jobs in it now." />}
        columns={[
          {
            name: "Type",
            lead: true,
            cell: (lane) => (
              <a href={href(`/jobs?${new URLSearchParams({ queue, type: lane.type })}`)}>
                <Text>{lane.type}</Text>
              </a>
            ),
          },
          {
            name: "Waiting",
            narrow: true,
            number: true,
            cell: (lane) => <Count value={sum(lane.states, WAITING)} to={to(lane.type, WAITING)} />,
          },
          {
            name: "Running",
            narrow: true,
            number: true,
            cell: (lane) => <Count value={lane.states.running} to={to(lane.type, ["running"])} />,
          },
          {
            name: "Dead",
            narrow: true,
            number: true,
            cell: (lane) => <Count value={sum(lane.states, DEAD)} to={to(lane.type, DEAD)} />,
          },
          { name: "Ever", narrow: true, number: true, cell: (lane) => number(lane.accepted) },
        ]}
      />
    </section>
  );
}

/** That it is paused, by whom and since when, as far as the record tells. */
function Paused({ queue }: { queue: string }) {
  const acts = useActs(`queue ${queue}`, 10);
  const pause = acts.data?.items.find((act) => act.act === "pause");
  return (
    <p class="notice warn">
      Paused{pause ? " by " : ""}
      {pause ? <Text>{pause.by ?? "somebody unnamed"}</Text> : null} {pause ? <When at={pause.at} /> : null}: nothing of
      it is claimed. Running jobs go on.
    </p>
  );
}

function Servers({ workers, queue }: { workers: Worker[]; queue: string }) {
  const serving = workers.filter((worker) => worker.queues.some((one) => one.queue === queue));
  return (
    <section class="card">
      <h2>Workers</h2>
      {serving.length === 0 ? (
        <>
          <p class="danger">Nobody serves it: its jobs wait.</p>
          <Command line={`windlass worker --queue ${quoted(queue)} --exec ./handler`} />
        </>
      ) : (
        <ul class="servers">
          {serving.map((worker) => {
            const own = worker.queues.find((one) => one.queue === queue);
            return (
              <li key={worker.id}>
                <span title={worker.id}>
                  <Text>{worker.id}</Text>
                </span>
                <span class="row close-row nowrap">
                  <Draining worker={worker} />
                  <span class="muted">
                    {own?.busy ?? 0} of {own?.slots ?? 0} slots
                  </span>
                </span>
              </li>
            );
          })}
        </ul>
      )}
    </section>
  );
}

export function QueueScreen({ name }: { name: string }) {
  const found = useResource<Queue>(`/v1/queues/${part(name)}`, 1500, "lanes");
  const workers = useResource<Schemas["Workers"]>("/v1/workers", 5000);
  const lines = useLines({ queue: name });
  // All of it comes at once, or charts that come later would push what is read already.
  const all = [found, ...Object.values(lines)];
  const shown = useRef(false);
  shown.current ||= all.every((one) => one.data !== undefined || one.problem !== undefined);
  const crumbs = (
    <p class="crumbs">
      <a href={href("/queues")}>Queues</a>
    </p>
  );
  if (!shown.current)
    return (
      <>
        {crumbs}
        <p class="muted">Loading…</p>
      </>
    );
  return (
    <>
      {crumbs}
      <Loaded of={found}>
        {(queue) => (
          <>
            <div class="head">
              <h1>
                <Text>{queue.name}</Text>
              </h1>
              {queue.paused ? <span class="pill">paused</span> : null}
              {queue.control ? <span class="pill">controlled</span> : null}
              {queue.states.scheduled > 0 ? (
                <span class="muted">
                  oldest ready <Oldest queue={queue} />
                </span>
              ) : null}
              {mayOperate() ? (
                <div class="actions">
                  <PauseButton queue={queue} reload={found.reload} />
                  <button
                    type="button"
                    class="button risky"
                    onClick={() =>
                      bulk({
                        action: "cancel",
                        title: `Purge ${queue.name}`,
                        typed: queue.name,
                        query: new URLSearchParams({ queue: queue.name, state: WAITING.join(",") }),
                      })
                    }
                  >
                    Purge…
                  </button>
                </div>
              ) : null}
            </div>
            {queue.paused ? <Paused queue={queue.name} /> : null}
            <div class="figures nine">
              {STATES.map((state) => (
                <a key={state} href={href(jobsOf(queue.name, state))}>
                  <span class={`name ${state}`}>{stateWord[state]}</span>
                  <span class={`value ${queue.states[state] >= 100_000 ? "long" : ""}`}>
                    {number(queue.states[state])}
                  </span>
                </a>
              ))}
            </div>
            <StateBar states={queue.states} />
            <Charts lines={lines} splits={[["type", "type"]]} />
            <FlowKeys queue={queue} reload={found.reload} />
            <div class="grid-3">
              <div class="stack">
                <Types queue={queue.name} />
                <NextUp queue={queue.name} controlled={Boolean(queue.control)} />
              </div>
              <div class="stack">
                <FlowFacts queue={queue} reload={found.reload} />
                <Servers workers={workers.data?.items ?? []} queue={queue.name} />
                <LastActs target={`queue ${queue.name}`} />
                <Terminal
                  lines={[
                    `windlass queues ${queue.paused ? "resume" : "pause"} ${quoted(queue.name)}`,
                    curl("POST", `/v1/queues/${part(queue.name)}/${queue.paused ? "resume" : "pause"}`),
                  ]}
                />
              </div>
            </div>
          </>
        )}
      </Loaded>
    </>
  );
}
