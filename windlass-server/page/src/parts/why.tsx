// Why a job does not run, in the server's words, each reason with what helps against it.

import { type Job, part, type Schemas, send } from "../api/client.ts";
import { type Resource, second } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { href } from "../router.ts";
import { counted, quoted, rate, span, stateMeaning } from "../words.ts";
import { Command } from "./copy.tsx";
import { JobLink } from "./job-facts.tsx";
import { Text } from "./text.tsx";
import { When } from "./time.tsx";

type Because = Schemas["Because"];

const LINKED_JOBS_MAX = 10;

function queueLink(queue: string) {
  return <a href={href(`/queues/${encodeURIComponent(queue)}`)}>to the queue</a>;
}

/** How long until a moment, second by second. */
function Countdown({ to }: { to: string }) {
  const left = Date.parse(to) - second.value;
  return (
    <span class="nowrap">
      {left > 0 ? `${span(Math.ceil(left / 1000) * 1000)} left` : "now"}; <When at={to} />
    </span>
  );
}

/** What helps against a reason. */
function Remedy({ why, job, reload }: { why: Because; job: Job; reload: () => void }) {
  switch (why.reason) {
    case "paused":
      return mayOperate() ? (
        <button
          type="button"
          class="button tiny"
          onClick={() => void send("POST", `/v1/queues/${part(why.queue)}/resume`).then(reload)}
        >
          Resume the queue
        </button>
      ) : (
        queueLink(why.queue)
      );
    case "waits_for":
      return (
        <span class="row">
          {why.jobs.slice(0, LINKED_JOBS_MAX).map((id) => (
            <JobLink key={id} id={id} />
          ))}
          {why.jobs.length > LINKED_JOBS_MAX ? `and ${why.jobs.length - LINKED_JOBS_MAX} more` : ""}
        </span>
      );
    case "delayed_until":
    case "backing_off_until":
      return <Countdown to={why.run_at} />;
    case "no_worker_for_queue":
      return (
        <>
          {queueLink(why.queue)}
          <Command line={`windlass worker --queue ${quoted(why.queue)} --exec ./handler`} />
        </>
      );
    case "no_worker_for_type":
      return (
        <>
          <a href={href("/workers")}>to the workers, with their types</a>
          <Command
            line={`windlass worker --queue ${quoted(job.queue ?? "default")} --type ${quoted(why.type)} --exec ./handler`}
          />
        </>
      );
    case "blocked":
      return (
        <span class="row">
          {why.until ? <Countdown to={why.until} /> : null}
          <a href={href(`/queues/${encodeURIComponent(job.queue ?? "default")}?keys=blocked`)}>
            {why.gate.startsWith("key ") ? "to its key, and what helps" : "to the limits of the queue"}
          </a>
        </span>
      );
    case "limit_reached":
      return (
        <a href={href(`/jobs?${new URLSearchParams({ state: "running", queue: job.queue ?? "" })}`)}>
          the jobs that have the slots
        </a>
      );
    case "jobs_ahead":
      return (
        <a href={href(`/jobs?${new URLSearchParams({ state: "scheduled", queue: job.queue ?? "" })}`)}>
          in the order of their claims
        </a>
      );
    case "lease_expired":
    case "lifetime_over":
      return <a href={href("/")}>upkeep does that within seconds; see what needs attention</a>;
    default:
      return null;
  }
}

/** About when it starts, counted down from when that was told. */
function About({ about, at }: { about: Schemas["Prospect"]; at: number }) {
  second.value;
  const left = Math.max(0, about.seconds * 1000 - (Date.now() - at));
  return (
    <p>
      <strong>About {span(Math.ceil(left / 1000) * 1000)}</strong> at the present rate: {counted(about.ahead, "job")}{" "}
      ahead, {rate(about.rate)} a second.
    </p>
  );
}

export function Why({ job, of }: { job: Job; of: Resource<Schemas["Explanation"]> }) {
  const reasons = of.data?.reasons;
  return (
    <section class="card" aria-label="Why">
      <h2>Why it does not run</h2>
      {reasons === undefined ? (
        <p class="muted">Looking…</p>
      ) : reasons.length === 0 ? (
        <p>Nothing holds it: the next claim takes it.</p>
      ) : (
        <ul class="why">
          {reasons.map((reason) => (
            <li key={reason.why.reason}>
              <span>
                <Text>{reason.text}</Text>
              </span>
              <Remedy why={reason.why} job={job} reload={of.reload} />
            </li>
          ))}
        </ul>
      )}
      {of.data?.about ? <About about={of.data.about} at={of.at} /> : null}
      <p class="small muted">{stateMeaning[job.state]}</p>
    </section>
  );
}
