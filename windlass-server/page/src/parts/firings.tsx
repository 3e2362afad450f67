// When a cron expression fires, with what clock changes do to it.

import type { Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { Problem } from "./notice.tsx";
import { exact, inUtc, When } from "./time.tsx";

const NOTES: Record<Schemas["Note"], string> = {
  after_gap: "moved: clocks leave its time out that day",
  first_of_two: "its time comes twice that day; this is the first",
  repeated: "its time comes twice that day; this is the second",
};

/** Whether a zone is that in which times are shown here. */
function isHere(zone: string): boolean {
  return zone === (inUtc.value ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone);
}

function Row({ firing, zone }: { firing: Schemas["Firings"]["next"][number]; zone: string }) {
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

export function Firings({ cron, zone }: { cron: string; zone: string }) {
  const asked = new URLSearchParams({ cron, zone, n: "10" });
  const found = useResource<Schemas["Firings"]>(`/v1/firings?${asked}`, 30_000);
  return (
    <section class="card" aria-label="Next firings">
      <h2>Next firings</h2>
      {found.problem && !found.data ? <Problem problem={found.problem} /> : null}
      <ol class="moments">
        {(found.data?.next ?? []).map((firing) => (
          <Row key={firing.at} firing={firing} zone={found.data?.zone ?? ""} />
        ))}
      </ol>
      {(found.data?.clock_changes ?? []).length > 0 ? (
        <>
          <h3>Next clock changes in {found.data?.zone}</h3>
          <ol class="moments">
            {found.data?.clock_changes.map((change) => (
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
