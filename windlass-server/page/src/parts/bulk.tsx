// Acts on many jobs: first a look at what would happen, then the act on exactly those jobs, then what came of it.
//
// The set is frozen: the jobs that match are collected by id before anybody is asked, and the act names these ids. What
// comes to match later is not swept along.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Job, type Refused, type Schemas, type State, send } from "../api/client.ts";
import { write } from "../api/filter.ts";
import { nudge } from "../api/live.ts";
import { href } from "../router.ts";
import { counted, number, STATES, stateWord } from "../words.ts";
import { Command, curl, quoted, say } from "./copy.tsx";
import { closeDialog, Dialog, dialog, tell } from "./dialog.tsx";
import { Problem } from "./notice.tsx";

type Action = Schemas["Action"];
type Found = Pick<Job, "id" | "type" | "state">;

/** As many ids as one call of the API takes. */
export const SET_MAX = 10_000;
const PAGE = 1000;
/** From so many jobs on, the number is to be typed. */
const TYPED_FROM = 1000;

interface BulkProps {
  action?: Action;
  jobs?: Found[];
  query?: URLSearchParams;
}

export function bulk(props: BulkProps) {
  dialog.value = <Bulk {...props} />;
}

const ACTS: [Action, word: string, past: string, says: string][] = [
  ["requeue", "Requeue", "requeued", "Sends dead jobs back to their queues, with their counters at zero."],
  ["cancel", "Cancel", "cancelled", "Ends jobs that wait; asks those that run to stop."],
  [
    "dead_letter",
    "Dead-letter",
    "dead-lettered",
    "Sets jobs aside as dead, to be looked at later; a run under way loses its lease.",
  ],
  ["delete", "Delete", "deleted", "Removes ended jobs for good. This cannot be undone."],
];

/** Which states an act takes, by the rules of the state machine. The server decides; this is for the preview. */
const TAKES: Record<Action, State[]> = {
  requeue: ["failed", "dead_letter"],
  cancel: ["pending", "delayed", "scheduled", "running", "retrying"],
  dead_letter: ["pending", "delayed", "scheduled", "running", "retrying", "failed"],
  delete: ["completed", "failed", "dead_letter", "cancelled"],
  edit: STATES,
};

/** Collects what matches, up to as many as one act can name. */
async function collect(query: URLSearchParams, stop: AbortSignal, found: (jobs: Found[]) => void) {
  let [jobs, cursor]: [Found[], string | null | undefined] = [[], undefined];
  do {
    const asked = new URLSearchParams(query);
    asked.set("limit", String(PAGE));
    asked.set("payloads", "false");
    if (cursor) asked.set("cursor", cursor);
    const page: Schemas["JobPage"] = await ask(`/v1/jobs?${asked}`, { signal: stop });
    jobs = jobs.concat(page.items.map(({ id, type, state }) => ({ id, type, state })));
    cursor = page.next_cursor;
    found(jobs.slice(0, SET_MAX));
  } while (cursor && jobs.length < SET_MAX);
  return cursor ? "more" : "all";
}

function useSet({ jobs, query }: BulkProps) {
  const [set, setSet] = useState<Found[]>(jobs ?? []);
  const [state, setState] = useState<"looking" | "all" | "more">(jobs ? "all" : "looking");
  const [problem, setProblem] = useState<Refused>();
  useEffect(() => {
    if (!query) return;
    const stop = new AbortController();
    collect(query, stop.signal, setSet)
      .then(setState)
      .catch((error) => !stop.signal.aborted && setProblem(error as Refused));
    return () => stop.abort();
  }, []);
  return { set, state, problem };
}

function Running({ id, word, of }: { id: string; word: string; of: number }) {
  const [status, setStatus] = useState<Schemas["OperationStatus"]>();
  const [problem, setProblem] = useState<Refused>();
  useEffect(() => {
    const stop = new AbortController();
    const follow = async () => {
      for (;;) {
        const seen = await ask<Schemas["OperationStatus"]>(`/v1/operations/${id}?wait=500ms`, { signal: stop.signal });
        setStatus(seen);
        if (seen.state !== "running") {
          nudge.value += 1;
          say(`${number(seen.changed)} ${word}`);
          return;
        }
      }
    };
    follow().catch((error) => !stop.signal.aborted && setProblem(error as Refused));
    return () => stop.abort();
  }, []);
  const refused = status?.refused.length ?? 0;
  return (
    <>
      <p aria-live="polite">
        {status ? `${number(status.changed)} ${word}` : "Starting…"}
        {refused > 0 ? `; ${number(refused)} had moved on` : ""}
        {status?.state === "stopped" ? "; stopped" : ""}
      </p>
      {status?.state === "running" || !status ? (
        <progress value={status?.changed ?? 0} max={of} aria-label="Progress" />
      ) : null}
      {refused > 0 ? (
        <details>
          <summary class="small muted">What was refused, and why</summary>
          <ul class="moments small">
            {status?.refused.slice(0, 20).map((one) => (
              <li key={one.id}>
                <a href={href(`/jobs/${one.id}`)}>
                  <code>{one.id.slice(0, 8)}</code>
                </a>
                <span>{one.problem.detail}</span>
              </li>
            ))}
          </ul>
        </details>
      ) : null}
      {status?.problem ? <p class="notice bad">{status.problem.detail}</p> : null}
      {problem ? <Problem problem={problem} /> : null}
      <div class="actions">
        {status?.state === "running" ? (
          <button type="button" class="button" onClick={() => void send("DELETE", `/v1/operations/${id}`)}>
            Stop
          </button>
        ) : null}
        <a class="button" href={href("/acts")} onClick={closeDialog}>
          To the record
        </a>
        <button type="button" class="button primary" onClick={closeDialog}>
          Close
        </button>
      </div>
    </>
  );
}

function byState(set: Found[]): [State, number][] {
  return STATES.map((state): [State, number] => [state, set.filter((job) => job.state === state).length]).filter(
    ([, count]) => count > 0,
  );
}

function Bulk(props: BulkProps) {
  const { set, state, problem: lookProblem } = useSet(props);
  const [action, setAction] = useState<Action>(props.action ?? "requeue");
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [operation, setOperation] = useState("");
  const [problem, setProblem] = useState<Refused>();
  const sent = useRef(false);
  const [, word, past, says] = ACTS.find(([own]) => own === action)!;
  const takes = set.filter((job) => TAKES[action].includes(job.state));
  const others = set.length - takes.length;
  const needsReason = action === "delete" || action === "dead_letter";
  const needsNumber = action === "delete" || takes.length >= TYPED_FROM;
  const body = { action, ids: takes.map((job) => job.id), reason: reason.trim() };
  const ready =
    state !== "looking" &&
    takes.length > 0 &&
    !(needsReason && !body.reason) &&
    !(needsNumber && typed.replace(/\D/g, "") !== String(takes.length));
  const act = async () => {
    if (sent.current) return;
    sent.current = true;
    setProblem(undefined);
    try {
      const started = await send<Schemas["OperationStatus"]>("POST", "/v1/operations", body);
      setOperation(started.id);
      tell(`${word} is under way`);
    } catch (error) {
      sent.current = false;
      setProblem(error as Refused);
    }
  };
  if (operation)
    return (
      <Dialog title={`${word} ${counted(takes.length, "job")}`}>
        <Running id={operation} word={past} of={takes.length} />
      </Dialog>
    );
  const few = takes.slice(0, 20);
  return (
    <Dialog title={props.query ? "Act on all that match" : `Act on ${counted(set.length, "job")}`}>
      {props.query ? (
        <p>
          <code>{write(props.query)}</code>
        </p>
      ) : null}
      <div class="row" role="radiogroup" aria-label="Act">
        {ACTS.map(([own, label]) => (
          <label key={own} class="check">
            <input type="radio" name="act" checked={action === own} onChange={() => setAction(own)} />
            {label}
          </label>
        ))}
      </div>
      <p class="muted">{says}</p>
      <p aria-live="polite">
        <strong>
          {state === "looking" ? `Looking… ${number(set.length)} so far` : counted(takes.length, "job")} will be {past}.
        </strong>{" "}
        {others > 0
          ? `${number(others)} will be left alone: this act does not take ${byState(set)
              .filter(([name]) => !TAKES[action].includes(name))
              .map(([name, count]) => `${number(count)} ${stateWord[name].toLowerCase()}`)
              .join(", ")}.`
          : ""}
      </p>
      {state === "more" ? (
        <p class="notice warn">
          More match than the {number(SET_MAX)} that one act can name. These are the newest; act again for the rest.
        </p>
      ) : null}
      {few.length > 0 ? (
        <details>
          <summary class="small muted">The first {few.length}</summary>
          <ul class="moments small">
            {few.map((job) => (
              <li key={job.id}>
                <code>{job.id.slice(0, 8)}</code>
                <span>
                  {job.type} · {stateWord[job.state].toLowerCase()}
                </span>
              </li>
            ))}
          </ul>
        </details>
      ) : null}
      <label class="field">
        <span>Reason {needsReason ? "(needed)" : "(kept with the act)"}</span>
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      {needsNumber && takes.length > 0 ? (
        <label class="field">
          <span>
            Type <code>{takes.length}</code> to go on
          </span>
          <input inputMode="numeric" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
      ) : null}
      {takes.length > 0 && takes.length <= 20 ? (
        <details>
          <summary class="small muted">The same from a terminal</summary>
          <div class="stack">
            <Command
              line={`windlass jobs ${action.replace("_", "-")} ${body.ids.join(" ")}${body.reason ? ` --reason ${quoted(body.reason)}` : ""}`}
            />
            <Command line={curl("POST", "/v1/operations", body)} />
          </div>
        </details>
      ) : null}
      {(problem ?? lookProblem) ? <Problem problem={(problem ?? lookProblem)!} /> : null}
      <div class="actions">
        <button type="button" class="button" onClick={closeDialog}>
          Cancel
        </button>
        <button
          type="submit"
          class={`button ${action === "delete" ? "risky" : "primary"}`}
          disabled={!ready}
          onClick={act}
        >
          {word} {takes.length > 0 ? counted(takes.length, "job") : ""}
        </button>
      </div>
    </Dialog>
  );
}
