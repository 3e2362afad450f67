// One job: what it is, why it waits, what happened to it, what it carries, and what can be done to it.

import { type Job, type Schemas, type State, send } from "../api/client.ts";
import { type Resource, useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { Contents } from "../parts/contents.tsx";
import { CopyButton } from "../parts/copy.tsx";
import { JobActs } from "../parts/job-acts.tsx";
import { Facts, JobLink, Relations } from "../parts/job-facts.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { StateBadge } from "../parts/state.tsx";
import { Strip } from "../parts/strip.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { clock, When } from "../parts/time.tsx";
import { href, query, withQuery } from "../router.ts";
import { ENDED, outcomeWord, span, stateMeaning } from "../words.ts";

type Because = Schemas["Because"];

const LINKED_JOBS_MAX = 10;

function queueLink(queue: string) {
  return <a href={href(`/queues/${encodeURIComponent(queue)}`)}>to the queue</a>;
}

/** What helps against a reason. */
function Remedy({ why, reload }: { why: Because; reload: () => void }) {
  switch (why.reason) {
    case "paused":
      return mayOperate() ? (
        <button
          type="button"
          class="button tiny"
          onClick={() => void send("POST", `/v1/queues/${encodeURIComponent(why.queue)}/resume`).then(reload)}
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
      return <When at={why.run_at} />;
    case "no_worker_for_queue":
      return queueLink(why.queue);
    case "no_worker_for_type":
    case "limit_reached":
      return <a href={href("/workers")}>to the workers</a>;
    default:
      return null;
  }
}

function Why({ job, of }: { job: Job; of: Resource<Schemas["Explanation"]> }) {
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
            <li key={reason.text}>
              <span>
                <Text>{reason.text}</Text>
              </span>
              <Remedy why={reason.why} reload={of.reload} />
            </li>
          ))}
        </ul>
      )}
      <p class="small muted">{stateMeaning[job.state]}</p>
    </section>
  );
}

export function FailureBox({ failure }: { failure: Schemas["Failure"] }) {
  return (
    <div class="failure">
      <p class="row">
        <strong class="danger">{failure.category}</strong>
        {failure.code ? (
          <a href={href(`/jobs?code=${encodeURIComponent(failure.code)}`)}>
            <code>
              <Text>{failure.code}</Text>
            </code>
          </a>
        ) : null}
        <span class="small muted">
          <When at={failure.at} />
        </span>
      </p>
      <p class="message">
        <Text>{failure.message}</Text>
      </p>
      {(failure.causes ?? []).map((cause, at) => (
        <p key={at} class="small">
          because: <Text>{cause}</Text>
        </p>
      ))}
    </div>
  );
}

function took(attempt: Schemas["Attempt"]): string {
  return attempt.ended_at ? span(Date.parse(attempt.ended_at) - Date.parse(attempt.started_at)) : "running";
}

const OUTCOME_STATE: Record<string, State> = {
  completed: "completed",
  failed: "failed",
  dead_lettered: "dead_letter",
  lost: "dead_letter",
};

function Attempts({ attempts }: { attempts: Schemas["Attempt"][] }) {
  return (
    <Table
      caption="Attempts, newest first"
      rows={[...attempts].reverse()}
      id={(attempt) => attempt.id}
      empty={<Empty says="No worker has taken it yet." />}
      columns={[
        { name: "Try", narrow: true, number: true, cell: (attempt) => attempt.number },
        {
          name: "Outcome",
          narrow: true,
          cell: (attempt) => (
            <span class={OUTCOME_STATE[attempt.outcome ?? ""] ?? ""}>
              {attempt.outcome ? outcomeWord[attempt.outcome] : "running"}
            </span>
          ),
        },
        { name: "Took", narrow: true, number: true, cell: took },
        { name: "Began", narrow: true, cell: (attempt) => <When at={attempt.started_at} /> },
        {
          name: "Failure",
          cell: (attempt) =>
            attempt.failure ? (
              <span class="clip" title={attempt.failure.message}>
                {attempt.failure.code ? (
                  <code>
                    <Text>{attempt.failure.code}</Text>{" "}
                  </code>
                ) : null}
                <Text>{attempt.failure.message}</Text>
              </span>
            ) : null,
        },
        { name: "Worker", cell: (attempt) => <Text>{attempt.worker}</Text> },
        { name: "Lease", narrow: true, number: true, cell: (attempt) => attempt.lease_version },
      ]}
    />
  );
}

function Logs({ id, live }: { id: string; live: boolean }) {
  const logs = useResource<Schemas["Logs"]>(`/v1/jobs/${id}/logs`, live ? 2000 : 0);
  return (
    <Loaded of={logs}>
      {(data) =>
        data.items.length === 0 ? (
          <Empty says="Its handler has logged nothing.">
            <p>
              A handler logs with <code>cx.log</code>, a program on its standard error.
            </p>
          </Empty>
        ) : (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys
          <section class="log" tabIndex={0} aria-label="Log lines">
            {data.items.map((line, at) => (
              <p key={at}>
                <time class="muted" dateTime={line.at}>
                  {clock(Date.parse(line.at))}
                </time>
                <span>
                  <Text>{line.text}</Text>
                </span>
              </p>
            ))}
          </section>
        )
      }
    </Loaded>
  );
}

const TABS: [string, string][] = [
  ["", "Attempts"],
  ["logs", "Logs"],
  ["payload", "Payload"],
  ["result", "Result"],
  ["checkpoint", "Checkpoint"],
];

function Body({ job, attempts }: { job: Job; attempts: Schemas["Attempt"][] }) {
  const tab = query.value.get("tab") ?? "";
  return (
    <>
      <nav class="tabs" aria-label="Parts of the job">
        {TABS.map(([own, word]) => (
          <a key={own} href={href(withQuery({ tab: own || null }))} aria-current={tab === own ? "true" : undefined}>
            {word}
            {own === "" && attempts.length > 0 ? <span class="count">{attempts.length}</span> : null}
          </a>
        ))}
      </nav>
      {tab === "" ? <Attempts attempts={attempts} /> : null}
      {tab === "logs" ? <Logs id={job.id} live={!ENDED.includes(job.state)} /> : null}
      {tab === "payload" || tab === "result" || tab === "checkpoint" ? (
        <Contents key={tab} job={job} part={tab} />
      ) : null}
    </>
  );
}

export function JobScreen({ name }: { name: string }) {
  const found = useResource<Job>(`/v1/jobs/${encodeURIComponent(name)}?payloads=false`, 1000);
  const ended = found.data !== undefined && ENDED.includes(found.data.state);
  const attempts = useResource<Schemas["Attempts"]>(
    found.data ? `/v1/jobs/${found.data.id}/attempts` : null,
    ended ? 5000 : 1500,
  );
  const waits = found.data !== undefined && !ended && found.data.state !== "running";
  const why = useResource<Schemas["Explanation"]>(waits ? `/v1/jobs/${found.data?.id}/explain` : null, 2000);
  return (
    <>
      <p class="crumbs">
        <a href={href("/jobs")}>Jobs</a> / <code>{name}</code> <CopyButton text={name} what="id" />
      </p>
      <Loaded of={found}>
        {(job) => (
          <>
            <div class="head">
              <h1>
                <Text>{job.type}</Text>
              </h1>
              <StateBadge state={job.state} large />
              <span class="muted">
                try {job.attempt} of {job.max_attempts}
              </span>
              <JobActs job={job} reload={found.reload} />
            </div>
            {job.progress && !ended ? (
              <div class="stack" style={{ gap: "4px" }}>
                <progress value={job.progress.fraction} max={1} aria-label="Progress" />
                <span class="small muted">
                  {Math.round(job.progress.fraction * 100)} % <Text>{job.progress.message ?? ""}</Text>
                </span>
              </div>
            ) : null}
            {job.failure && job.state !== "completed" ? <FailureBox failure={job.failure} /> : null}
            <div class="grid-3">
              <div class="stack">
                <section class="card">
                  <h2>History</h2>
                  <Strip job={job} attempts={attempts.data?.items ?? []} />
                </section>
                <Body job={job} attempts={attempts.data?.items ?? []} />
              </div>
              <div class="stack">
                {waits ? <Why job={job} of={why} /> : null}
                <section class="card">
                  <h2>Facts</h2>
                  <Facts job={job} />
                </section>
                <Relations job={job} />
              </div>
            </div>
          </>
        )}
      </Loaded>
    </>
  );
}
