// When a timing fires, in words and moments, with what clock changes do to it and what may not have been meant.

import { useEffect, useState } from "preact/hooks";
import { type Refused, type Schemas, send } from "../api/client.ts";
import { spaced } from "../words.ts";
import { Problem } from "./notice.tsx";
import { exact, inUtc, When } from "./time.tsx";

export interface Timing {
  cron?: string;
  zone?: string;
  every?: string;
  anchor?: string;
  delay?: string;
}

const NOTES: Record<Schemas["Note"], string> = {
  after_gap: "moved: clocks leave its time out that day",
  first_of_two: "its time comes twice that day; this is the first",
  repeated: "its time comes twice that day; this is the second",
};

/** While somebody types, the server is asked when they rest. */
const REST_MS = 250;
const AGAIN_MS = 30_000;

/** Whether a zone is that in which times are shown here. */
function isHere(zone: string): boolean {
  return zone === (inUtc.value ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone);
}

function usePreview(timing: Timing) {
  const [found, setFound] = useState<Schemas["Previewed"]>();
  const [problem, setProblem] = useState<Refused>();
  const body = JSON.stringify({ ...timing, n: 10 });
  useEffect(() => {
    let gone = false;
    const look = () =>
      send<Schemas["Previewed"]>("POST", "/v1/schedules/preview", body)
        .then((seen) => {
          if (gone) return;
          setFound(seen);
          setProblem(undefined);
        })
        .catch((error) => !gone && setProblem(error as Refused));
    const first = setTimeout(look, REST_MS);
    const later = setInterval(() => !document.hidden && look(), AGAIN_MS);
    return () => {
      gone = true;
      clearTimeout(first);
      clearInterval(later);
    };
  }, [body]);
  return { found, problem };
}

function Row({ firing, zone }: { firing: Schemas["Foreseen"]; zone: string }) {
  return (
    <li>
      <When at={firing.at} />
      <span>
        {firing.local} {isHere(zone) ? null : <span class="small muted">({exact(Date.parse(firing.at))} here)</span>}
        {firing.note ? <span class="notice warn small">{NOTES[firing.note]}</span> : null}
      </span>
    </li>
  );
}

export function Firings({ timing }: { timing: Timing }) {
  const { found, problem } = usePreview(timing);
  const zone = timing.cron ? (timing.zone ?? "UTC") : "UTC";
  const changes = found?.clock_changes ?? [];
  return (
    <section class="card" aria-label="Next firings">
      <h2>Next firings</h2>
      {problem ? <Problem problem={problem} /> : null}
      {found && !problem ? <p>{spaced(found.words)}</p> : null}
      {found && !problem
        ? found.warnings.map((warning) => (
            <p key={warning} class="notice warn">
              {warning}
            </p>
          ))
        : null}
      <ol class="moments">
        {(problem ? [] : (found?.next ?? [])).map((firing) => (
          <Row key={firing.at} firing={firing} zone={zone} />
        ))}
      </ol>
      {changes.length > 0 && !problem ? (
        <>
          <h3>Next clock changes in {zone}</h3>
          <ol class="moments">
            {changes.map((change) => (
              <li key={change.at}>
                <When at={change.at} />
                <span>
                  {change.local}
                  {change.firings.length === 0 ? <span class="muted">: touches no firing</span> : null}
                  {change.firings.map((firing) => (
                    <span key={firing.at} class="notice warn small">
                      {firing.local}: {firing.note ? NOTES[firing.note] : ""}
                    </span>
                  ))}
                </span>
              </li>
            ))}
          </ol>
        </>
      ) : null}
    </section>
  );
}
