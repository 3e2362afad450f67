// The life of a job as one strip: a band for each state it was in, from submission to now. A slider shows it as it was
// at any moment.

import { useState } from "preact/hooks";
import type { Job, Schemas, State } from "../api/client.ts";
import { second } from "../api/live.ts";
import { ENDED, outcomeWord, span, stateWord } from "../words.ts";
import { clock } from "./time.tsx";

type Attempt = Schemas["Attempt"];

export interface Band {
  state: State;
  from: number;
  to: number;
  attempt?: Attempt;
}

const at = (time: string) => Date.parse(time);

/** The bands that a job's record and attempts tell of, oldest first, without gaps. */
export function bands(job: Job, attempts: Attempt[], until: number): Band[] {
  const found: Band[] = [];
  const wait = (state: State, from: number, to: number) => {
    if (to > from) found.push({ state, from, to });
  };
  const first: State =
    (job.depends_on?.length ?? 0) > 0
      ? "pending"
      : job.submitted_run_at || job.submitted_delay
        ? "delayed"
        : "scheduled";
  let from = at(job.created_at);
  attempts.forEach((attempt, index) => {
    const before = attempts[index - 1];
    const state: State = !before
      ? first
      : before.outcome === "failed"
        ? "retrying"
        : before.outcome === "snoozed"
          ? "delayed"
          : "scheduled";
    wait(state, from, at(attempt.started_at));
    const to = attempt.ended_at ? at(attempt.ended_at) : until;
    found.push({ state: "running", from: at(attempt.started_at), to, attempt });
    from = to;
  });
  const end = job.completed_at ? at(job.completed_at) : until;
  const last = attempts.at(-1);
  if (ENDED.includes(job.state)) {
    if (!last || end > from) wait(last ? "retrying" : first, from, end);
    found.push({ state: job.state, from: end, to: end });
  } else if (job.state !== "running") wait(job.state, from, until);
  return found;
}

/** How much room each band gets: by its length, but idle ones no more than all others together. */
export function widths(all: Band[]): { width: number; folded: boolean }[] {
  const length = (band: Band) => Math.max(1, band.to - band.from);
  const busy = all.filter((band) => band.state === "running").reduce((sum, band) => sum + length(band), 0);
  return all.map((band) => {
    const folds = busy > 0 && band.state !== "running" && length(band) > 3 * busy;
    return { width: folds ? 3 * busy : length(band), folded: folds };
  });
}

function wording(band: Band): string {
  if (band.attempt) {
    const came = band.attempt.outcome ? outcomeWord[band.attempt.outcome] : "still running";
    return `try ${band.attempt.number} on ${band.attempt.worker}, lease ${band.attempt.lease_version}: ${came}`;
  }
  return band.from === band.to
    ? `ended as ${stateWord[band.state].toLowerCase()}`
    : stateWord[band.state].toLowerCase();
}

export function Strip({ job, attempts }: { job: Job; attempts: Attempt[] }) {
  const [chosen, setChosen] = useState(-1);
  const all = bands(job, attempts, second.value);
  const room = widths(all);
  const place = chosen < 0 ? all.length - 1 : Math.min(chosen, all.length - 1);
  const band = all[place];
  if (!band) return null;
  const length = band.to - band.from;
  const sentence = `${clock(band.from)}${length > 0 ? ` for ${span(length)}` : ""}: ${wording(band)}`;
  return (
    <div class="stack" style={{ gap: "6px" }}>
      <div class="strip" aria-hidden="true">
        {all.map((one, index) => (
          <span
            key={index}
            class={`${one.state} ${one.state === "running" ? "solid" : ""} ${room[index]!.folded ? "folded" : ""} ${index === place ? "chosen" : ""}`}
            style={{ flexGrow: String(room[index]!.width) }}
            title={wording(one)}
          />
        ))}
      </div>
      {all.length > 1 ? (
        <input
          type="range"
          min={0}
          max={all.length - 1}
          value={place}
          aria-label="Moment of the job's life"
          aria-valuetext={sentence}
          onInput={(event) => setChosen(Number(event.currentTarget.value))}
        />
      ) : null}
      <p class="strip-ends">
        <span>{clock(all[0]!.from)}</span>
        <strong class={band.state}>{sentence}</strong>
        <span>{ENDED.includes(job.state) ? clock(all.at(-1)!.to) : "now"}</span>
      </p>
    </div>
  );
}
