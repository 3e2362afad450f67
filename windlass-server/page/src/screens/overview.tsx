// The first screen: how much comes in and goes out, what waits, and what has died.

import { useRef } from "preact/hooks";
import type { Job, Schemas } from "../api/client.ts";
import { sumOf, useLanes } from "../api/lanes.ts";
import { type Resource, useResource } from "../api/live.ts";
import { Attention } from "../parts/attention.tsx";
import { Charts, useLines } from "../parts/charts.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { useRates } from "../parts/rates.ts";
import { sum as count, StateBadge } from "../parts/state.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { href } from "../router.ts";
import { counted, DEAD, ENDED, number, rate, WAITING } from "../words.ts";
import { Oldest, QueueTable } from "./queues.tsx";

/** The class that lets a figure fit into its box, by how many letters it has. */
function fit(text: string): string {
  return text.length > 8 ? "longer" : text.length > 6 ? "long" : "";
}

function Figure({ name, value, unit, to }: { name: string; value: string; unit?: string; to: string }) {
  return (
    <a href={href(to)}>
      <span class="name">{name}</span>
      <span class={`value ${fit(value)}`}>
        {value} {unit ? <small>{unit}</small> : null}
      </span>
    </a>
  );
}

function oldestOf(queues: Schemas["Queue"][]): Schemas["Queue"] | undefined {
  const ready = queues.filter((queue) => queue.oldest_scheduled && queue.states.scheduled > 0);
  return ready.sort((one, other) => Date.parse(one.oldest_scheduled!) - Date.parse(other.oldest_scheduled!))[0];
}

interface FiguresProps {
  lanes: Resource<Schemas["Lanes"]>;
  queues: Schemas["Queue"][];
  workers: Schemas["Worker"][];
}

function Figures({ lanes, queues, workers }: FiguresProps) {
  const sum = lanes.data ? sumOf(lanes.data.items) : undefined;
  const rates = useRates(sum, lanes.at);
  const slots = workers.flatMap((worker) => worker.queues).reduce((all, one) => all + one.slots, 0);
  const oldest = oldestOf(queues);
  const told = (of: "in" | "out" | "failing") => (rates ? rate(rates[of]) : "…");
  const ended = ENDED.join(",");
  return (
    <Loaded of={lanes}>
      {() => (
        <div class="figures seven">
          <Figure name="In" value={told("in")} unit="/s" to="/jobs" />
          <Figure name="Out" value={told("out")} unit="/s" to={`/jobs?state=${ended}`} />
          <Figure name="Failing" value={told("failing")} unit="/s" to="/errors?state=retrying" />
          <Figure name="Waiting" value={number(count(sum!.states, WAITING))} to={`/jobs?state=${WAITING.join(",")}`} />
          <a href={href(oldest ? `/queues/${encodeURIComponent(oldest.name)}` : "/queues")}>
            <span class="name">Oldest ready</span>
            <span class="value">{oldest ? <Oldest queue={oldest} short /> : "–"}</span>
          </a>
          <Figure
            name="Running"
            value={number(sum!.states.running)}
            unit={slots ? `of ${number(slots)}` : ""}
            to="/jobs?state=running"
          />
          <Figure name="Dead" value={number(count(sum!.states, DEAD))} to={`/jobs?state=${DEAD.join(",")}`} />
        </div>
      )}
    </Loaded>
  );
}

function Failures() {
  const page = useResource<Schemas["JobPage"]>(
    "/v1/jobs?state=failed,dead_letter&limit=8&payloads=false",
    3000,
    "lanes",
  );
  return (
    <section class="stack" style={{ gap: "8px" }}>
      <h2>Newest dead jobs</h2>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="Newest dead jobs"
            steady
            rows={data.items}
            id={(job: Job) => job.id}
            empty={<Empty says="No dead jobs." />}
            columns={[
              { name: "State", lead: true, narrow: true, cell: (job) => <StateBadge state={job.state} /> },
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
              {
                name: "Failure",
                cell: (job) => (
                  <span class="clip">
                    <Text>{job.failure?.message ?? job.reason?.message ?? job.reason?.kind ?? ""}</Text>
                  </span>
                ),
              },
              { name: "Ended", narrow: true, cell: (job) => <When at={job.completed_at} /> },
            ]}
            foot={<a href={href("/jobs?state=failed,dead_letter")}>All dead jobs</a>}
          />
        )}
      </Loaded>
    </section>
  );
}

/** Who works, in one line. */
function Workers({ workers }: { workers: Schemas["Worker"][] }) {
  const all = workers.flatMap((worker) => worker.queues);
  const slots = all.reduce((sum, one) => sum + one.slots, 0);
  const busy = all.reduce((sum, one) => sum + (one.busy ?? 0), 0);
  const draining = workers.filter((worker) => worker.draining).length;
  const hosts = new Set(workers.map((worker) => worker.host)).size;
  return (
    <section class="stack" style={{ gap: "8px" }}>
      <h2>Workers</h2>
      <p class="card line">
        {workers.length === 0 ? (
          <span class="danger">No worker is there: nothing runs.</span>
        ) : (
          <span>
            {counted(workers.length, "worker")} on {counted(hosts, "host")}, {number(busy)} of {number(slots)} slots
            busy
            {draining > 0 ? `, ${number(draining)} draining` : ""}
          </span>
        )}
        <a href={href("/workers")}>All workers</a>
      </p>
    </section>
  );
}

function Operations() {
  const list = useResource<Schemas["Operations"]>("/v1/operations", 3000);
  const going = (list.data?.items ?? []).filter((one) => one.state === "running" && !one.dry_run);
  if (going.length === 0) return null;
  return (
    <p class="notice">
      {counted(going.length, "act")} on many jobs under way:{" "}
      {going.map((one) => one.action.replace("_", "-")).join(", ")}
      <a href={href("/acts?tab=operations")}>Look</a>
    </p>
  );
}

export function Overview() {
  const queues = useResource<Schemas["QueuePage"]>("/v1/queues", 2000, "lanes");
  const workers = useResource<Schemas["Workers"]>("/v1/workers", 5000);
  const lanes = useLanes(1000);
  const attention = useResource<Schemas["Attention"]>("/v1/attention", 5000);
  const lines = useLines();
  // All of it comes at once, or what comes later would push what is read already.
  const all = [queues, lanes, attention, ...Object.values(lines)];
  const shown = useRef(false);
  shown.current ||= all.every((one) => one.data !== undefined || one.problem !== undefined);
  if (!shown.current)
    return (
      <>
        <h1>Overview</h1>
        <p class="muted">Loading…</p>
      </>
    );
  return (
    <>
      <h1>Overview</h1>
      <Figures lanes={lanes} queues={queues.data?.items ?? []} workers={workers.data?.items ?? []} />
      <Attention of={attention} />
      <Operations />
      <Charts lines={lines} />
      <section class="stack" style={{ gap: "8px" }}>
        <h2>Queues</h2>
        <Loaded of={queues}>
          {(data) => <QueueTable queues={data.items} workers={workers.data?.items ?? []} reload={queues.reload} />}
        </Loaded>
      </section>
      <Failures />
      <Workers workers={workers.data?.items ?? []} />
    </>
  );
}
