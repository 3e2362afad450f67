// What each attempt came to, with its failure in full, and set beside the attempt before.

import { useState } from "preact/hooks";
import type { Schemas, State } from "../api/client.ts";
import { href } from "../router.ts";
import { outcomeWord, span } from "../words.ts";
import { Difference } from "./difference.tsx";
import { Empty } from "./notice.tsx";
import { Table } from "./table.tsx";
import { Text } from "./text.tsx";
import { When } from "./time.tsx";

type Attempt = Schemas["Attempt"];
type Failure = Schemas["Failure"];

export function FailureBox({ failure, fault }: { failure: Failure; fault?: string | null | undefined }) {
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
        {fault ? (
          <a class="small push" href={href(`/errors/${fault}`)}>
            All that died of it
          </a>
        ) : null}
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

function took(attempt: Attempt): string {
  return attempt.ended_at ? span(Date.parse(attempt.ended_at) - Date.parse(attempt.started_at)) : "running";
}

const OUTCOME_STATE: Record<string, State> = {
  completed: "completed",
  failed: "failed",
  dead_lettered: "dead_letter",
  lost: "dead_letter",
};

/** An attempt as lines that can be set beside those of another. */
export function asLines(attempt: Attempt): string {
  const { failure } = attempt;
  return [
    `outcome: ${attempt.outcome ? outcomeWord[attempt.outcome] : "running"}`,
    `worker: ${attempt.worker}`,
    `took: ${took(attempt)}`,
    ...(failure
      ? [
          `category: ${failure.category}`,
          ...(failure.code ? [`code: ${failure.code}`] : []),
          failure.message,
          ...(failure.causes ?? []).map((cause) => `because: ${cause}`),
        ]
      : []),
  ].join("\n");
}

function Compared({ attempts, id, close }: { attempts: Attempt[]; id: string; close: () => void }) {
  const at = attempts.findIndex((attempt) => attempt.id === id);
  const [before, after] = [attempts[at - 1], attempts[at]];
  if (!before || !after) return null;
  return (
    <section class="card" aria-label="Two attempts compared">
      <header>
        <h2>
          Try {before.number} and try {after.number}
        </h2>
        <button type="button" class="button quiet tiny push" onClick={close}>
          Close
        </button>
      </header>
      {before.failure?.message === after.failure?.message && before.failure ? (
        <p class="small muted">Both failed with the same words.</p>
      ) : null}
      <Difference before={asLines(before)} after={asLines(after)} label="What is different between the two attempts" />
    </section>
  );
}

export function Attempts({ attempts }: { attempts: Attempt[] }) {
  const [compared, setCompared] = useState("");
  return (
    <>
      {compared ? <Compared attempts={attempts} id={compared} close={() => setCompared("")} /> : null}
      <Table
        caption="Attempts, newest first"
        rows={[...attempts].reverse()}
        id={(attempt) => attempt.id}
        empty={<Empty says="No worker has taken it yet." />}
        columns={[
          { name: "Try", lead: true, narrow: true, number: true, cell: (attempt) => attempt.number },
          {
            name: "Outcome",
            lead: true,
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
            name: "What",
            cell: (attempt) => (
              <span class="two-lines">
                {attempt.failure ? (
                  <details class="failure-line">
                    <summary>
                      {attempt.failure.code ? (
                        <code>
                          <Text>{attempt.failure.code}</Text>{" "}
                        </code>
                      ) : null}
                      <Text>{attempt.failure.message.slice(0, 160)}</Text>
                    </summary>
                    <FailureBox failure={attempt.failure} />
                  </details>
                ) : null}
                <span class="small muted">
                  <Text>{attempt.worker}</Text>, lease {attempt.lease_version}
                </span>
              </span>
            ),
          },
          {
            name: "Before",
            narrow: true,
            cell: (attempt) =>
              attempts[0]?.id === attempt.id ? null : (
                <button
                  type="button"
                  class="button tiny"
                  aria-label={`Compare try ${attempt.number} with the one before`}
                  onClick={() => setCompared(attempt.id)}
                >
                  Compare
                </button>
              ),
          },
        ]}
      />
    </>
  );
}
