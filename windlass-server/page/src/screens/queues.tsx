// Queues: what waits in each, how long, who serves it; and one queue with what can be done to it.

import { Fragment } from "preact";
import type { Job, Schemas, State } from "../api/client.ts";
import { part, send } from "../api/client.ts";
import { second, useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { bulk } from "../parts/bulk.tsx";
import { Command, curl, quoted, Terminal } from "../parts/copy.tsx";
import { tell } from "../parts/dialog.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { StateBadge, StateBar, sum } from "../parts/state.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { href } from "../router.ts";
import { number, STATES, span, stateWord } from "../words.ts";

type Queue = Schemas["Queue"];
type Worker = Schemas["Worker"];

const WAITING: State[] = ["pending", "delayed", "scheduled", "retrying"];

/** A count that leads to what it counts. */
export function Count({ value, to }: { value: number; to: string }) {
  return value === 0 ? <span class="number-zero">0</span> : <a href={href(to)}>{number(value)}</a>;
}

function jobsOf(queue: string, ...states: State[]): string {
  const asked = new URLSearchParams({ queue });
  if (states.length > 0) asked.set("state", states.join(","));
  return `/jobs?${asked}`;
}

export function slotsOf(workers: Worker[], queue: string) {
  const served = workers.flatMap((worker) => worker.queues.filter((one) => one.queue === queue));
  const all = served.reduce((total, one) => total + one.slots, 0);
  const busy = served.reduce((total, one) => total + (one.busy ?? 0), 0);
  return { all, busy, workers: served.length };
}

/** How long the job that has been ready longest has waited. */
export function Oldest({ queue }: { queue: Queue }) {
  if (!queue.oldest_scheduled || queue.states.scheduled === 0) return <span class="muted">–</span>;
  const waited = second.value - Date.parse(queue.oldest_scheduled);
  return (
    <span class={waited > 60_000 ? "retrying" : ""}>
      {waited < 1000 ? "<1 s" : span(Math.floor(waited / 1000) * 1000)}
    </span>
  );
}

async function setPaused(queue: string, pause: boolean, reload: () => void) {
  await send("POST", `/v1/queues/${part(queue)}/${pause ? "pause" : "resume"}`);
  reload();
  tell(pause ? `${queue} is paused; running jobs go on` : `${queue} goes on`);
}

function PauseButton({ queue, reload, tiny }: { queue: Queue; reload: () => void; tiny?: boolean }) {
  if (!mayOperate()) return null;
  return (
    <button
      type="button"
      class={`button ${tiny ? "tiny" : ""}`}
      onClick={() => void setPaused(queue.name, !queue.paused, reload)}
      aria-label={`${queue.paused ? "Resume" : "Pause"} ${queue.name}`}
    >
      {queue.paused ? "Resume" : "Pause"}
    </button>
  );
}

function columns(workers: Worker[], reload: () => void): Column<Queue>[] {
  const counts = (name: string, of: State[]): Column<Queue> => ({
    name,
    narrow: true,
    number: true,
    cell: (queue) => <Count value={sum(queue.states, of)} to={jobsOf(queue.name, ...of)} />,
  });
  const all: Column<Queue>[] = [
    {
      name: "Queue",
      lead: true,
      cell: (queue) => (
        <span class="row">
          <a href={href(`/queues/${encodeURIComponent(queue.name)}`)}>
            <Text>{queue.name}</Text>
          </a>
          {queue.paused ? <span class="pill">paused</span> : null}
        </span>
      ),
    },
    counts("Ready", ["scheduled"]),
    counts("Later", ["pending", "delayed", "retrying"]),
    counts("Running", ["running"]),
    counts("Dead", ["failed", "dead_letter"]),
    counts("Completed", ["completed"]),
    { name: "Oldest ready", narrow: true, number: true, cell: (queue) => <Oldest queue={queue} /> },
    {
      name: "Slots",
      narrow: true,
      number: true,
      cell: (queue) => {
        const slots = slotsOf(workers, queue.name);
        return slots.workers === 0 ? <span class="danger">no worker</span> : `${slots.busy} of ${slots.all}`;
      },
    },
  ];
  if (mayOperate())
    all.push({ name: "Acts", narrow: true, cell: (queue) => <PauseButton queue={queue} reload={reload} tiny /> });
  return all;
}

/** The system's own queues are marks for itself until there are jobs in them. */
function isShown(queue: Queue): boolean {
  return !queue.name.startsWith("windlass.") || sum(queue.states) > 0;
}

export function QueueTable({ queues, workers, reload }: { queues: Queue[]; workers: Worker[]; reload: () => void }) {
  return (
    <Table
      caption="Queues"
      rows={queues.filter(isShown)}
      id={(queue) => queue.name}
      empty={
        <Empty
          says="No queues yet. A queue is there as soon as a job is in it."
          command={`windlass enqueue hello --queue mail --payload '{}'`}
        />
      }
      columns={columns(workers, reload)}
    />
  );
}

export function QueuesScreen() {
  const queues = useResource<Schemas["QueuePage"]>("/v1/queues", 2000);
  const workers = useResource<Schemas["Workers"]>("/v1/workers", 5000);
  return (
    <>
      <div class="head">
        <h1>Queues</h1>
      </div>
      <Loaded of={queues}>
        {(data) => <QueueTable queues={data.items} workers={workers.data?.items ?? []} reload={queues.reload} />}
      </Loaded>
    </>
  );
}

function Newest({ queue }: { queue: string }) {
  const page = useResource<Schemas["JobPage"]>(
    `/v1/jobs?queue=${encodeURIComponent(queue)}&limit=10&payloads=false`,
    3000,
  );
  return (
    <section class="stack" style={{ gap: "8px" }}>
      <h2>Newest jobs</h2>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="Newest jobs of the queue"
            steady
            rows={data.items}
            id={(job: Job) => job.id}
            empty={<Empty says="No jobs in it now." />}
            columns={[
              { name: "State", lead: true, narrow: true, cell: (job) => <StateBadge state={job.state} /> },
              {
                name: "Job",
                lead: true,
                cell: (job) => (
                  <a href={href(`/jobs/${job.id}`)}>
                    <Text>{job.type}</Text>
                  </a>
                ),
              },
              { name: "Priority", narrow: true, cell: (job) => job.effective_priority },
              { name: "Submitted", narrow: true, cell: (job) => <When at={job.created_at} /> },
            ]}
            foot={<a href={href(jobsOf(queue))}>All jobs of this queue</a>}
          />
        )}
      </Loaded>
    </section>
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
        <dl class="facts">
          {serving.map((worker) => {
            const own = worker.queues.find((one) => one.queue === queue);
            return (
              <Fragment key={worker.id}>
                <dt>
                  <Text>{worker.id}</Text>
                </dt>
                <dd>
                  {own?.busy ?? 0} of {own?.slots ?? 0} slots busy
                </dd>
              </Fragment>
            );
          })}
        </dl>
      )}
    </section>
  );
}

export function QueueScreen({ name }: { name: string }) {
  const found = useResource<Queue>(`/v1/queues/${part(name)}`, 1500);
  const workers = useResource<Schemas["Workers"]>("/v1/workers", 5000);
  return (
    <>
      <p class="crumbs">
        <a href={href("/queues")}>Queues</a>
      </p>
      <Loaded of={found}>
        {(queue) => (
          <>
            <div class="head">
              <h1>
                <Text>{queue.name}</Text>
              </h1>
              {queue.paused ? <span class="pill">paused</span> : null}
              {mayOperate() ? (
                <div class="actions">
                  <PauseButton queue={queue} reload={found.reload} />
                  <button
                    type="button"
                    class="button risky"
                    onClick={() =>
                      bulk({
                        action: "cancel",
                        query: new URLSearchParams({ queue: queue.name, state: WAITING.join(",") }),
                      })
                    }
                  >
                    Purge…
                  </button>
                </div>
              ) : null}
            </div>
            {queue.paused ? (
              <p class="notice warn">
                Paused: nothing of it is claimed. Running jobs go on. <a href={href("/acts")}>Who did that?</a>
              </p>
            ) : null}
            <div class="figures nine">
              {STATES.map((state) => (
                <a key={state} href={href(jobsOf(queue.name, state))}>
                  <span class={`name ${state}`}>{stateWord[state]}</span>
                  <span class="value">{number(queue.states[state])}</span>
                </a>
              ))}
            </div>
            <StateBar states={queue.states} />
            <div class="grid-3">
              <Newest queue={queue.name} />
              <div class="stack">
                <section class="card">
                  <h2>Waiting</h2>
                  <dl class="facts">
                    <dt>Oldest ready</dt>
                    <dd>
                      <Oldest queue={queue} />
                    </dd>
                  </dl>
                </section>
                <Servers workers={workers.data?.items ?? []} queue={queue.name} />
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
