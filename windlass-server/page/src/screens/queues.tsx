// Queues: what waits in each, for how long, and who serves it.

import type { Schemas, State } from "../api/client.ts";
import { part, send } from "../api/client.ts";
import { useLanes } from "../api/lanes.ts";
import { second, useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { tell } from "../parts/dialog.tsx";
import { useActs } from "../parts/last-acts.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { Lines } from "../parts/spark.tsx";
import { sum } from "../parts/state.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { href } from "../router.ts";
import { about, counted, number, span } from "../words.ts";

type Queue = Schemas["Queue"];
type Worker = Schemas["Worker"];

/** A count that leads to what it counts. */
export function Count({ value, to }: { value: number; to: string }) {
  return value === 0 ? <span class="number-zero">0</span> : <a href={href(to)}>{number(value)}</a>;
}

export function jobsOf(queue: string, ...states: State[]): string {
  const asked = new URLSearchParams({ queue });
  if (states.length > 0) asked.set("state", states.join(","));
  return `/jobs?${asked}`;
}

export function slotsOf(workers: Worker[], queue: string) {
  const served = workers.flatMap((worker) => worker.queues.filter((one) => one.queue === queue));
  const all = served.reduce((total, one) => total + one.slots, 0);
  const busy = served.reduce((total, one) => total + (one.busy ?? 0), 0);
  const draining = workers.filter((worker) => worker.draining && worker.queues.some((one) => one.queue === queue));
  return { all, busy, workers: served.length, draining: draining.length };
}

/** How long the job that has been ready longest has waited. */
export function Oldest({ queue, short = false }: { queue: Queue; short?: boolean }) {
  if (!queue.oldest_scheduled || queue.states.scheduled === 0) return <span class="muted">–</span>;
  const waited = second.value - Date.parse(queue.oldest_scheduled);
  return (
    <span class={`nowrap ${waited > 60_000 ? "retrying" : ""}`}>
      {waited < 1000 ? "<1 s" : short ? about(waited) : span(Math.floor(waited / 1000) * 1000)}
    </span>
  );
}

async function setPaused(queue: string, pause: boolean, reload: () => void) {
  await send("POST", `/v1/queues/${part(queue)}/${pause ? "pause" : "resume"}`);
  reload();
  tell(pause ? `${queue} is paused; running jobs go on` : `${queue} goes on`);
}

export function PauseButton({ queue, reload, tiny }: { queue: Queue; reload: () => void; tiny?: boolean }) {
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

/** What only the screen of queues shows of them. */
interface Extra {
  lanes: Schemas["Lane"][];
  rates: Schemas["Series"] | undefined;
}

/** By whom a queue is paused and since when, as far as the record tells. */
function PausedBy({ queue }: { queue: string }) {
  const pause = useActs(`queue ${queue}`, 10).data?.items.find((act) => act.act === "pause");
  if (!pause) return null;
  return (
    <>
      , paused by <Text>{pause.by ?? "somebody unnamed"}</Text> <When at={pause.at} />
    </>
  );
}

/** Under its name: how many types are in it, who serves it, and who paused it. */
function Shortly({ queue, workers, lanes }: { queue: Queue; workers: Worker[]; lanes: Schemas["Lane"][] }) {
  const types = lanes.filter((lane) => lane.queue === queue.name).map((lane) => lane.type);
  return (
    <span class="small muted" title={types.join(", ")}>
      {counted(types.length, "type")}, {counted(slotsOf(workers, queue.name).workers, "worker")}
      {queue.paused ? <PausedBy queue={queue.name} /> : null}
    </span>
  );
}

function InOut({ queue, of }: { queue: string; of: Schemas["Series"] | undefined }) {
  const line = (name: string) => of?.series.find((one) => one.queue === queue && one.name === name)?.values ?? [];
  return <Lines first={line("in")} second={line("out")} words={["in", "out"]} />;
}

function columns(workers: Worker[], reload: () => void, extra?: Extra): Column<Queue>[] {
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
        <span class="two-lines">
          <span class="row close-row">
            <a href={href(`/queues/${encodeURIComponent(queue.name)}`)}>
              <Text>{queue.name}</Text>
            </a>
            {queue.paused ? <span class="pill">paused</span> : null}
            {queue.control ? <span class="pill">controlled</span> : null}
          </span>
          {extra ? <Shortly queue={queue} workers={workers} lanes={extra.lanes} /> : null}
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
        if (slots.workers === 0) return <span class="danger">no worker</span>;
        if (slots.workers === slots.draining) return <span class="danger">all draining</span>;
        return `${slots.busy} of ${slots.all}`;
      },
    },
  ];
  if (extra)
    all.push({
      name: "In and out, 1 h",
      narrow: true,
      cell: (queue) => <InOut queue={queue.name} of={extra.rates} />,
    });
  if (mayOperate())
    all.push({ name: "Acts", narrow: true, cell: (queue) => <PauseButton queue={queue} reload={reload} tiny /> });
  return all;
}

/** The system's own queues are marks for itself until there are jobs in them. */
function isShown(queue: Queue): boolean {
  return !queue.name.startsWith("windlass.") || sum(queue.states) > 0;
}

interface QueueTableProps {
  queues: Queue[];
  workers: Worker[];
  reload: () => void;
  extra?: Extra;
}

export function QueueTable({ queues, workers, reload, extra }: QueueTableProps) {
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
      columns={columns(workers, reload, extra)}
    />
  );
}

export function QueuesScreen() {
  const queues = useResource<Schemas["QueuePage"]>("/v1/queues", 2000, "lanes");
  const workers = useResource<Schemas["Workers"]>("/v1/workers", 5000);
  const lanes = useLanes(5000);
  const rates = useResource<Schemas["Series"]>("/v1/series?of=rate&by=queue&last=1h", 10_000);
  return (
    <>
      <div class="head">
        <h1>Queues</h1>
      </div>
      <Loaded of={queues}>
        {(data) => (
          <QueueTable
            queues={data.items}
            workers={workers.data?.items ?? []}
            reload={queues.reload}
            extra={{ lanes: lanes.data?.items ?? [], rates: rates.data }}
          />
        )}
      </Loaded>
    </>
  );
}
