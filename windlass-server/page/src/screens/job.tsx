// One job: what it is, why it waits, what happened to it, what it carries, and what can be done to it.

import type { Job, Schemas } from "../api/client.ts";
import { isId } from "../api/filter.ts";
import { useResource } from "../api/live.ts";
import { Attempts, FailureBox } from "../parts/attempts.tsx";
import { Contents } from "../parts/contents.tsx";
import { CopyButton } from "../parts/copy.tsx";
import { History } from "../parts/history.tsx";
import { JobActs } from "../parts/job-acts.tsx";
import { Facts, Relations } from "../parts/job-facts.tsx";
import { Logs } from "../parts/logs.tsx";
import { Loaded } from "../parts/notice.tsx";
import { StateBadge } from "../parts/state.tsx";
import { Text } from "../parts/text.tsx";
import { Why } from "../parts/why.tsx";
import { href, query, withQuery } from "../router.ts";
import { ENDED } from "../words.ts";

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
      {tab === "logs" ? <Logs id={job.id} live={!ENDED.includes(job.state)} attempts={attempts} /> : null}
      {tab === "payload" || tab === "result" || tab === "checkpoint" ? (
        <Contents key={tab} job={job} part={tab} />
      ) : null}
    </>
  );
}

export function JobScreen({ name }: { name: string }) {
  const topic = isId(name) ? `job:${name}` : "";
  const found = useResource<Job>(`/v1/jobs/${encodeURIComponent(name)}?payloads=false`, 1000, topic);
  const ended = found.data !== undefined && ENDED.includes(found.data.state);
  const attempts = useResource<Schemas["Attempts"]>(
    found.data ? `/v1/jobs/${found.data.id}/attempts` : null,
    ended ? 5000 : 1500,
    topic,
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
            {job.failure && job.state !== "completed" ? (
              <FailureBox failure={job.failure} fault={job.fingerprint} />
            ) : null}
            <div class="grid-3">
              <div class="stack">
                <History job={job} />
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
