// An act on many jobs under way: how far it is, to be stopped; and what came of it.

import { useEffect, useState } from "preact/hooks";
import { type Refused, type Schemas, send } from "../api/client.ts";
import { nudge } from "../api/live.ts";
import { href } from "../router.ts";
import { number } from "../words.ts";
import { follow } from "./bulk-set.ts";
import { say } from "./copy.tsx";
import { closeDialog } from "./dialog.tsx";
import { Problem } from "./notice.tsx";

const REFUSED_SHOWN_MAX = 20;

interface RunningProps {
  id: string;
  /** What was done, in the past: `requeued`. */
  word: string;
  /** How many the look had found. */
  of: number;
}

function Refusals({ refused }: { refused: Schemas["Refused"][] }) {
  return (
    <details>
      <summary class="small muted">What was refused, and why</summary>
      <ul class="moments small">
        {refused.slice(0, REFUSED_SHOWN_MAX).map((one) => (
          <li key={one.id}>
            <a href={href(`/jobs/${one.id}`)}>
              <code>{one.id.slice(0, 8)}</code>
            </a>
            <span>{one.problem.detail}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

export function Running({ id, word, of }: RunningProps) {
  const [status, setStatus] = useState<Schemas["OperationStatus"]>();
  const [problem, setProblem] = useState<Refused>();
  useEffect(() => {
    const stop = new AbortController();
    follow(id, stop.signal, setStatus)
      .then((ended) => {
        nudge.value += 1;
        say(`${number(ended.changed)} ${word}`);
      })
      .catch((error) => !stop.signal.aborted && setProblem(error as Refused));
    return () => stop.abort();
  }, []);
  const refused = status?.refused ?? [];
  const runs = status === undefined || status.state === "running";
  const moved = status && status.state === "done" ? Math.max(of - status.changed, refused.length) : refused.length;
  return (
    <>
      <p aria-live="polite">
        {status ? `${number(status.changed)} ${word}` : "Starting…"}
        {!runs && moved > 0 ? `; ${number(moved)} had moved on` : ""}
        {status?.state === "stopped" ? "; stopped" : ""}
      </p>
      {runs ? <progress value={status?.changed ?? 0} max={of} aria-label="Progress" /> : null}
      {refused.length > 0 ? <Refusals refused={refused} /> : null}
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
