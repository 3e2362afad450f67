// Workers: who is there, what each serves, and what it runs.

import type { Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { Empty, Loaded } from "../parts/notice.tsx";
import { StateBadge } from "../parts/state.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { busyOf, DrainButton, Draining } from "../parts/worker-acts.tsx";
import { href } from "../router.ts";
import { counted, number, spaced, span } from "../words.ts";

type Worker = Schemas["Worker"];

const RUNNING_MAX = 200;

function slots(worker: Worker): number {
  return worker.queues.reduce((sum, queue) => sum + queue.slots, 0);
}

function Running() {
  const page = useResource<Schemas["JobPage"]>(`/v1/jobs?state=running&limit=${RUNNING_MAX}&payloads=false`, 2000);
  return (
    <section class="stack close">
      <h2>Running now</h2>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="Running jobs"
            steady
            rows={data.items}
            id={(job) => job.id}
            empty={<Empty says="Nothing runs now." />}
            columns={[
              {
                name: "Job",
                lead: true,
                narrow: true,
                cell: (job) => (
                  <a href={href(`/jobs/${job.id}`)}>
                    <Text>{job.type}</Text>
                  </a>
                ),
              },
              { name: "Worker", cell: (job) => <Text>{job.lease?.worker ?? "?"}</Text> },
              { name: "Try", narrow: true, number: true, cell: (job) => `${job.attempt} of ${job.max_attempts}` },
              {
                name: "Progress",
                cell: (job) =>
                  job.progress ? (
                    <span>
                      {Math.round(job.progress.fraction * 100)} % <Text>{job.progress.message ?? ""}</Text>
                    </span>
                  ) : null,
              },
              { name: "Began", narrow: true, cell: (job) => <When at={job.started_at} /> },
              { name: "May take", narrow: true, cell: (job) => spaced(job.execution_timeout) },
              { name: "Lease ends", narrow: true, cell: (job) => <When at={job.lease?.expires_at} /> },
            ]}
            foot={data.next_cursor ? `The newest ${number(RUNNING_MAX)}; there are more.` : undefined}
          />
        )}
      </Loaded>
    </section>
  );
}

/** Those that went without goodbye, what they held, and who has it now. */
function Gone({ workers }: { workers: Schemas["GoneWorker"][] }) {
  if (workers.length === 0) return null;
  return (
    <section class="stack close" aria-label="Went without goodbye">
      <h2>Went without goodbye</h2>
      <Table
        caption="Workers of which nothing is heard any more although they held jobs"
        rows={workers}
        id={(worker) => worker.id}
        empty={null}
        columns={[
          {
            name: "Worker",
            lead: true,
            cell: (worker) => (
              <span class="two-lines">
                <Text>{worker.id}</Text>
                <span class="small muted">
                  <Text>{worker.host}</Text>
                </span>
              </span>
            ),
          },
          { name: "Last heard of", narrow: true, cell: (worker) => <When at={worker.seen_at} /> },
          {
            name: "What it held",
            cell: (worker) => (
              <ul class="plain-list">
                {worker.jobs.map((job) => (
                  <li key={job.id} class="row">
                    <StateBadge state={job.state} />
                    <a href={href(`/jobs/${job.id}`)}>
                      <Text>{job.type}</Text>
                    </a>
                    {job.worker === worker.id ? (
                      <span class="muted">until its lease ends</span>
                    ) : job.worker ? (
                      <span>
                        now on <Text>{job.worker}</Text>
                      </span>
                    ) : null}
                  </li>
                ))}
                {worker.jobs.length === 0 ? <li class="muted">Its jobs are gone.</li> : null}
                {worker.more ? <li class="muted">and more</li> : null}
              </ul>
            ),
          },
        ]}
        foot="In the last hour, as far as this server saw it."
      />
    </section>
  );
}

export function WorkersScreen() {
  const workers = useResource<Schemas["Workers"]>("/v1/workers?gone=1h", 2000);
  return (
    <>
      <div class="head">
        <h1>Workers</h1>
      </div>
      <Loaded of={workers}>
        {(data) => (
          <Table
            caption="Workers that were heard of in the last 30 seconds"
            rows={data.items}
            id={(worker) => worker.id}
            empty={
              <Empty
                says="No worker is there: what is ready waits. Workers are your own programs, or this one:"
                command="windlass worker --queue default --exec ./handler"
              />
            }
            columns={[
              {
                name: "Worker",
                lead: true,
                cell: (worker) => (
                  <span class="two-lines">
                    <span class="row close-row">
                      <Text>{worker.id}</Text>
                      <Draining worker={worker} />
                    </span>
                    {worker.host ? (
                      <span class="small muted">
                        <Text>{worker.host}</Text>
                      </span>
                    ) : null}
                  </span>
                ),
              },
              { name: "Busy", narrow: true, number: true, cell: (worker) => `${busyOf(worker)} of ${slots(worker)}` },
              {
                name: "Queues",
                cell: (worker) => (
                  <span class="row">
                    {worker.queues.map((queue) => (
                      <a key={queue.queue} class="pill" href={href(`/queues/${encodeURIComponent(queue.queue)}`)}>
                        <Text>{queue.queue}</Text> {queue.busy ?? 0}/{queue.slots}
                      </a>
                    ))}
                  </span>
                ),
              },
              {
                name: "Types",
                cell: (worker) =>
                  worker.types?.length ? (
                    <details>
                      <summary>{counted(worker.types.length, "type")}</summary>
                      <Text>{worker.types.join(", ")}</Text>
                    </details>
                  ) : (
                    "any"
                  ),
              },
              { name: "Since", narrow: true, cell: (worker) => <When at={worker.started_at} /> },
              { name: "Heard of", narrow: true, cell: (worker) => <When at={worker.seen_at} /> },
              ...(mayOperate()
                ? [
                    {
                      name: "Acts",
                      narrow: true,
                      cell: (worker: Worker) => <DrainButton worker={worker} reload={workers.reload} />,
                    },
                  ]
                : []),
            ]}
            foot={`Those heard of in the last ${span(30_000)}. A worker that dies loses its leases when they end, and others take its jobs over.`}
          />
        )}
      </Loaded>
      <Gone workers={workers.data?.gone ?? []} />
      <Running />
    </>
  );
}
