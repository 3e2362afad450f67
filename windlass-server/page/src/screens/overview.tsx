// The first screen: how much comes in and goes out, what waits, and what has died.

import { useRef } from "preact/hooks";
import type { Job, Schemas } from "../api/client.ts";
import { type Resource, useResource } from "../api/live.ts";
import { Attention } from "../parts/attention.tsx";
import { Chart, type Look } from "../parts/chart.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { useRates } from "../parts/rates.ts";
import { StateBadge, sum } from "../parts/state.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { href, query, withQuery } from "../router.ts";
import { number, rate } from "../words.ts";
import { Oldest, QueueTable } from "./queues.tsx";

function Figure({ name, value, unit, to }: { name: string; value: string; unit?: string; to: string }) {
  return (
    <a href={href(to)}>
      <span class="name">{name}</span>
      <span class="value">
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
  totals: Resource<Schemas["Totals"]>;
  queues: Schemas["Queue"][];
  workers: Schemas["Worker"][];
}

function Figures({ totals, queues, workers }: FiguresProps) {
  const rates = useRates(totals.data, totals.at);
  const slots = workers.flatMap((worker) => worker.queues).reduce((all, one) => all + one.slots, 0);
  const oldest = oldestOf(queues);
  return (
    <Loaded of={totals}>
      {({ states }) => (
        <div class="figures">
          <Figure name="In" value={rates ? rate(rates.in) : "…"} unit="/s" to="/jobs" />
          <Figure
            name="Out"
            value={rates ? rate(rates.out) : "…"}
            unit="/s"
            to="/jobs?state=completed,failed,dead_letter,cancelled"
          />
          <Figure
            name="Waiting"
            value={number(sum(states, ["pending", "delayed", "scheduled", "retrying"]))}
            to="/jobs?state=pending,delayed,scheduled,retrying"
          />
          <a href={href(oldest ? `/queues/${encodeURIComponent(oldest.name)}` : "/queues")}>
            <span class="name">Oldest ready</span>
            <span class="value">{oldest ? <Oldest queue={oldest} /> : "–"}</span>
          </a>
          <Figure
            name="Running"
            value={number(states.running)}
            unit={slots ? `of ${number(slots)} slots` : ""}
            to="/jobs?state=running"
          />
          <Figure
            name="Dead"
            value={number(sum(states, ["failed", "dead_letter"]))}
            to="/jobs?state=failed,dead_letter"
          />
        </div>
      )}
    </Loaded>
  );
}

function Failures() {
  const page = useResource<Schemas["JobPage"]>("/v1/jobs?state=failed,dead_letter&limit=8&payloads=false", 3000);
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

const RATES: Look[] = [
  { name: "in", word: "in", ink: "scheduled" },
  { name: "out", word: "out", ink: "completed", dash: "5 3" },
];

const DEPTHS: Look[] = [
  { name: "scheduled", word: "ready", ink: "scheduled" },
  { name: "later", word: "later", ink: "delayed", dash: "2 3" },
  { name: "running", word: "running", ink: "running", dash: "7 3" },
  { name: "dead", word: "dead", ink: "failed", dash: "5 3" },
];

const SPANS: [string, string][] = [
  ["5m", "5 min"],
  ["15m", "15 min"],
  ["1h", "1 h"],
];

function Charts({ rates, depths }: { rates: Resource<Schemas["Series"]>; depths: Resource<Schemas["Series"]> }) {
  const last = query.value.get("last") ?? "5m";
  return (
    <section class="stack close" aria-label="The last while">
      <div class="row">
        {SPANS.map(([span, word]) => (
          <a
            key={span}
            class={`button tiny ${last === span ? "primary" : ""}`}
            href={href(withQuery({ last: span === "5m" ? null : span }))}
            aria-current={last === span ? "true" : undefined}
          >
            {word}
          </a>
        ))}
        {rates.data?.since ? (
          <span class="small muted push">
            as this server has seen it, since <When at={rates.data.since} />
          </span>
        ) : null}
      </div>
      <div class="grid-2">
        <Loaded of={rates}>
          {(data) => <Chart title="Throughput" unit="jobs a second" data={data} looks={RATES} />}
        </Loaded>
        <Loaded of={depths}>{(data) => <Chart title="Backlog" unit="jobs" data={data} looks={DEPTHS} />}</Loaded>
      </div>
    </section>
  );
}

export function Overview() {
  const queues = useResource<Schemas["QueuePage"]>("/v1/queues", 2000);
  const workers = useResource<Schemas["Workers"]>("/v1/workers", 5000);
  const totals = useResource<Schemas["Totals"]>("/v1/stats", 1000);
  const attention = useResource<Schemas["Attention"]>("/v1/attention", 5000);
  const last = query.value.get("last") ?? "5m";
  const rates = useResource<Schemas["Series"]>(`/v1/series?of=rate&last=${last}`, 5000);
  const depths = useResource<Schemas["Series"]>(`/v1/series?of=depth&last=${last}`, 5000);
  // All of it comes at once, or what comes later would push what is read already.
  const all = [queues, totals, attention, rates, depths];
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
      <Figures totals={totals} queues={queues.data?.items ?? []} workers={workers.data?.items ?? []} />
      <Attention of={attention} />
      <Charts rates={rates} depths={depths} />
      <section class="stack" style={{ gap: "8px" }}>
        <h2>Queues</h2>
        <Loaded of={queues}>
          {(data) => <QueueTable queues={data.items} workers={workers.data?.items ?? []} reload={queues.reload} />}
        </Loaded>
      </section>
      <Failures />
    </>
  );
}
