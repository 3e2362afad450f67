// The columns of a list of jobs; people choose among them.

import type { Job } from "../api/client.ts";
import { href } from "../router.ts";
import { ENDED, span } from "../words.ts";
import { StateBadge } from "./state.tsx";
import type { Column } from "./table.tsx";
import { Text } from "./text.tsx";
import { When } from "./time.tsx";

/** What matters most about a job in its state: how far it is, what went wrong, or when it runs. */
export function WhatNow({ job }: { job: Job }) {
  if (job.state === "running" && job.progress)
    return (
      <span>
        {Math.round(job.progress.fraction * 100)} % <Text>{job.progress.message ?? ""}</Text>
      </span>
    );
  if (job.state === "running") return <Text>{`on ${job.lease?.worker ?? "?"}`}</Text>;
  if (job.failure && job.state !== "completed")
    return (
      <span class="clip" title={job.failure.message}>
        {job.failure.code ? (
          <code>
            <Text>{job.failure.code}</Text>
          </code>
        ) : null}{" "}
        <Text>{job.failure.message.slice(0, 300)}</Text>
      </span>
    );
  if (job.run_at && !ENDED.includes(job.state))
    return (
      <span>
        runs <When at={job.run_at} />
      </span>
    );
  return null;
}

function ran(job: Job): string {
  if (!job.started_at || !job.completed_at) return "–";
  return span(Date.parse(job.completed_at) - Date.parse(job.started_at));
}

function TagPills({ job }: { job: Job }) {
  return (
    <span class="row">
      {Object.entries(job.tags ?? {}).map(([key, value]) => (
        <a key={key} class="pill" href={href(`/jobs?${new URLSearchParams({ [`tag.${key}`]: value })}`)}>
          <Text>{`${key}: ${value}`}</Text>
        </a>
      ))}
    </span>
  );
}

/** A name that a column cuts, for those who point at it. */
function whole(name: string): string | undefined {
  return name.length > 30 ? name : undefined;
}

export const JOB: Column<Job> = {
  name: "Job",
  narrow: true,
  lead: true,
  cell: (job) => (
    <span class="name-and-id">
      <a href={href(`/jobs/${job.id}`)} title={whole(job.type)}>
        <Text>{job.type}</Text>
      </a>
      <code class="small muted" title={job.id}>
        {job.id.slice(0, 8)}
      </code>
    </span>
  ),
};

export const STATE: Column<Job> = {
  name: "State",
  narrow: true,
  lead: true,
  cell: (job) => <StateBadge state={job.state} />,
};

/** Those that can be left out. */
export const CHOICE: Column<Job>[] = [
  {
    name: "Queue",
    narrow: true,
    cell: (job) => (
      <a href={href(`/jobs?queue=${encodeURIComponent(job.queue ?? "")}`)} title={whole(job.queue ?? "")}>
        <Text>{job.queue ?? ""}</Text>
      </a>
    ),
  },
  { name: "What", cell: (job) => <WhatNow job={job} /> },
  { name: "Tags", cell: (job) => <TagPills job={job} /> },
  { name: "Priority", narrow: true, cell: (job) => job.effective_priority },
  { name: "Worker", narrow: true, cell: (job) => (job.lease ? <Text>{job.lease.worker}</Text> : null) },
  { name: "Tries", narrow: true, number: true, cell: (job) => `${job.attempt} of ${job.max_attempts}` },
  { name: "Submitted", narrow: true, cell: (job) => <When at={job.created_at} /> },
  { name: "Ran", narrow: true, number: true, cell: ran },
  { name: "Ended", narrow: true, cell: (job) => <When at={job.completed_at} /> },
];
