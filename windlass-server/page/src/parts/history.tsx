// The life of a job: one strip from submission to now, a band for each state, folded where nothing happened for long; a
// slider that shows the job as it was at any moment; and the same as a list.

import { useState } from "preact/hooks";
import type { Job, Schemas, State } from "../api/client.ts";
import { second, useResource } from "../api/live.ts";
import { counted, ENDED, outcomeWord, span, stateWord } from "../words.ts";
import { Loaded } from "./notice.tsx";
import { StateBadge } from "./state.tsx";
import { Text } from "./text.tsx";
import { clock, exact } from "./time.tsx";

type Happened = Schemas["Happened"];

export interface Band {
  state: State;
  from: number;
  to: number;
  /** The place of what began it, in the history. */
  place: number;
}

/** The state after each thing that happened: its own, or the one before where it says nothing about that. */
export function statesOf(items: Happened[]): State[] {
  let state: State = "scheduled";
  return items.map((item) => {
    state = item.state ?? state;
    return state;
  });
}

/** The bands between what happened, oldest first; the last goes on until now, or is a point where the job has ended. */
export function bandsOf(items: Happened[], until: number): Band[] {
  const states = statesOf(items);
  return items.map((item, place) => {
    const from = Date.parse(item.at);
    const next = items[place + 1];
    const end = next ? Date.parse(next.at) : ENDED.includes(states[place]!) ? from : until;
    return { state: states[place]!, from, to: Math.max(from, end), place };
  });
}

/** How much room each band gets: by its length, but waiting ones no more than three times all that ran. */
export function widths(all: Band[]): { width: number; folded: boolean }[] {
  const length = (band: Band) => Math.max(1, band.to - band.from);
  const busy = all.filter((band) => band.state === "running").reduce((sum, band) => sum + length(band), 0);
  return all.map((band) => {
    const folds = busy > 0 && band.state !== "running" && length(band) > 3 * busy;
    return { width: folds ? 3 * busy : length(band), folded: folds };
  });
}

const WHAT: Record<string, string> = {
  ...outcomeWord,
  submitted: "submitted",
  ready: "ready",
  started: "claimed",
  ended: "ended",
};

/** What happened, in words. */
export function told(item: Happened): string {
  const parts = [WHAT[item.what] ?? item.what.replaceAll("_", " ")];
  if (item.attempt != null) parts.push(`try ${item.attempt}`);
  if (item.worker) parts.push(`on ${item.worker}`);
  if (item.lease_version != null) parts.push(`lease ${item.lease_version}`);
  if (item.by) parts.push(`by ${item.by}`);
  return parts.join(", ");
}

function Moments({ items, chosen, choose }: { items: Happened[]; chosen: number; choose: (place: number) => void }) {
  const states = statesOf(items);
  return (
    <details>
      <summary class="small muted">The same as a list, {counted(items.length, "moment")}</summary>
      <ol class="moments small">
        {items.map((item, place) => (
          <li key={place} class={place === chosen ? "chosen" : ""}>
            <button
              type="button"
              class="button quiet tiny"
              title={exact(Date.parse(item.at))}
              onClick={() => choose(place)}
            >
              {clock(Date.parse(item.at))}
            </button>
            <span>
              <StateBadge state={states[place]!} /> <Text>{told(item)}</Text>
              {item.reason ? (
                <span class="muted">
                  {" "}
                  “<Text>{item.reason}</Text>”
                </span>
              ) : null}
              {item.failure ? (
                <span class="danger">
                  {" "}
                  <Text>{item.failure.message.slice(0, 200)}</Text>
                </span>
              ) : null}
            </span>
          </li>
        ))}
      </ol>
    </details>
  );
}

function Life({ history, ended }: { history: Schemas["History"]; ended: boolean }) {
  const [chosen, setChosen] = useState(-1);
  const { items } = history;
  const all = bandsOf(items, second.value);
  const room = widths(all);
  const place = chosen < 0 ? all.length - 1 : Math.min(chosen, all.length - 1);
  const band = all[place];
  const item = items[place];
  if (!band || !item) return null;
  const length = band.to - band.from;
  const state = stateWord[band.state].toLowerCase();
  const sentence = `${clock(band.from)}${length > 0 ? ` for ${span(length)}` : ""}: ${told(item).startsWith(state) ? "" : `${state}; `}${told(item)}`;
  return (
    <div class="stack close">
      <div class="strip" aria-hidden="true">
        {all.map((one, index) => (
          <span
            key={index}
            class={`${one.state} ${one.state === "running" ? "solid" : ""} ${room[index]!.folded ? "folded" : ""} ${index === place ? "chosen" : ""}`}
            style={{ flexGrow: String(room[index]!.width) }}
            title={`${stateWord[one.state]}, ${span(one.to - one.from)}`}
          >
            {room[index]!.folded ? <small>{span(one.to - one.from)}</small> : null}
          </span>
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
        <span>{ended ? clock(all.at(-1)!.to) : "now"}</span>
      </p>
      <p>
        <strong class={band.state}>
          <Text>{sentence}</Text>
        </strong>
      </p>
      {item.reason || item.failure ? (
        <p class="small">
          {item.reason ? (
            <>
              “<Text>{item.reason}</Text>”{" "}
            </>
          ) : null}
          {item.failure ? (
            <span class="danger">
              <Text>{item.failure.message}</Text>
            </span>
          ) : null}
        </p>
      ) : null}
      <Moments items={items} chosen={place} choose={setChosen} />
      {history.complete ? null : <p class="small muted">Its oldest attempts or acts are not kept any more.</p>}
    </div>
  );
}

export function History({ job }: { job: Job }) {
  const ended = ENDED.includes(job.state);
  const found = useResource<Schemas["History"]>(`/v1/jobs/${job.id}/history`, ended ? 0 : 2000, `job:${job.id}`);
  return (
    <section class="card">
      <h2>History</h2>
      <Loaded of={found}>{(history) => <Life history={history} ended={ended} />}</Loaded>
    </section>
  );
}
