// What is fixed about a job, and what it is related to.

import { type ComponentChildren, Fragment } from "preact";
import type { Job, Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { href } from "../router.ts";
import { counted, ENDED, spaced } from "../words.ts";
import { Text } from "./text.tsx";
import { Moment, When } from "./time.tsx";

export function JobLink({ id }: { id: string }) {
  return (
    <a href={href(`/jobs/${id}`)}>
      <code>{id.slice(0, 8)}</code>
    </a>
  );
}

export function Facts({ job }: { job: Job }) {
  const facts: [string, ComponentChildren][] = [
    [
      "Queue",
      <a href={href(`/queues/${encodeURIComponent(job.queue ?? "")}`)}>
        <Text>{job.queue ?? ""}</Text>
      </a>,
    ],
    [
      "Priority",
      job.effective_priority === job.priority ? job.priority : `${job.priority}, in effect ${job.effective_priority}`,
    ],
    ["Submitted", <Moment at={job.created_at} />],
  ];
  if (job.run_at && !ENDED.includes(job.state)) facts.push(["Not before", <Moment at={job.run_at} />]);
  if (job.started_at) facts.push(["Last begun", <Moment at={job.started_at} />]);
  if (job.completed_at) facts.push(["Ended", <Moment at={job.completed_at} />]);
  if (job.deadline) facts.push(["Lifetime ends", <Moment at={job.deadline} />]);
  if (job.lease) {
    facts.push(["Worker", <Text>{job.lease.worker}</Text>]);
    facts.push([
      "Lease",
      <Fragment>
        version {job.lease.version}, ends <When at={job.lease.expires_at} />
      </Fragment>,
    ]);
  }
  facts.push([
    "Limits",
    `${counted(job.max_attempts ?? 1, "try", "tries")}, each ${spaced(job.execution_timeout)}; lease ${spaced(job.visibility_timeout)}`,
  ]);
  if (job.lost > 0) facts.push(["Lost with a worker", `${job.lost} times`]);
  if (job.reason)
    facts.push([
      "Ended because",
      <Text>{`${job.reason.kind}${job.reason.message ? `: ${job.reason.message}` : ""}${job.reason.by ? ` (${job.reason.by})` : ""}`}</Text>,
    ]);
  if (job.cancel)
    facts.push([
      "Cancel asked",
      <Fragment>
        <When at={job.cancel.at} /> <Text>{`${job.cancel.by ?? ""} ${job.cancel.message ?? ""}`}</Text>
      </Fragment>,
    ]);
  if (job.idempotency_key)
    facts.push([
      "Idempotency key",
      <code>
        <Text>{job.idempotency_key}</Text>
      </code>,
    ]);
  if (job.callback_url)
    facts.push([
      "Calls back",
      <code>
        <Text>{job.callback_url}</Text>
      </code>,
    ]);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <Fragment key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </Fragment>
      ))}
    </dl>
  );
}

const NAMED_MAX = 20;

function JobLinks({ ids }: { ids: string[] }) {
  return (
    <span class="row">
      {ids.slice(0, NAMED_MAX).map((id) => (
        <JobLink key={id} id={id} />
      ))}
      {ids.length > NAMED_MAX ? `and ${ids.length - NAMED_MAX} more` : ""}
    </span>
  );
}

/** The steps of its workflow that wait for it. */
function useDependents(job: Job): string[] {
  const graph = useResource<Schemas["Graph"]>(job.workflow_id ? `/v1/workflows/${job.workflow_id}/graph` : null);
  return (graph.data?.edges ?? []).filter((edge) => edge.from === job.id).map((edge) => edge.to);
}

export function Relations({ job }: { job: Job }) {
  const rows: [string, ComponentChildren][] = [];
  const dependents = useDependents(job);
  if (job.workflow_id)
    rows.push([
      "Workflow",
      <a href={href(`/workflows/${job.workflow_id}`)}>
        <code>{job.workflow_id.slice(0, 8)}</code>
      </a>,
    ]);
  if (job.depends_on?.length)
    rows.push(["Waits for", <JobLinks ids={job.depends_on.flatMap((one) => one.job ?? [])} />]);
  if (dependents.length > 0) rows.push(["Needed by", <JobLinks ids={dependents} />]);
  if (job.spawned_by) rows.push(["Spawned by", <JobLink id={job.spawned_by} />]);
  if (job.cloned_from) rows.push(["Copied from", <JobLink id={job.cloned_from} />]);
  if (job.firing)
    rows.push([
      "Schedule",
      <Fragment>
        <a href={href(`/schedules/${encodeURIComponent(job.firing.schedule)}`)}>
          <Text>{job.firing.schedule}</Text>
        </a>{" "}
        for <Moment at={job.firing.slot} />
      </Fragment>,
    ]);
  if (job.correlation_id)
    rows.push([
      "Correlation",
      <a href={href(`/jobs?correlation_id=${encodeURIComponent(job.correlation_id)}`)}>
        <Text>{job.correlation_id}</Text>
      </a>,
    ]);
  if (job.trace_context) rows.push(["Trace", <code>{job.trace_context.traceparent}</code>]);
  const tags = Object.entries(job.tags ?? {});
  if (tags.length > 0)
    rows.push([
      "Tags",
      <span class="row">
        {tags.map(([key, value]) => (
          <a key={key} class="pill" href={href(`/jobs?${new URLSearchParams({ [`tag.${key}`]: value })}`)}>
            <Text>{`${key}: ${value}`}</Text>
          </a>
        ))}
      </span>,
    ]);
  if (rows.length === 0) return null;
  return (
    <section class="card">
      <h2>Relations</h2>
      <dl class="facts">
        {rows.map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
      </dl>
    </section>
  );
}
