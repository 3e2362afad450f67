// Telling a worker to take no more jobs, and to take some again.

import { part, type Schemas, send } from "../api/client.ts";
import { mayOperate } from "../api/me.ts";
import { counted } from "../words.ts";
import { curl, quoted } from "./copy.tsx";
import { ActDialog, dialog, tell } from "./dialog.tsx";

type Worker = Schemas["Worker"];

export function busyOf(worker: Worker): number {
  return worker.queues.reduce((sum, queue) => sum + (queue.busy ?? 0), 0);
}

/** That it takes no more jobs, and whether it still runs some: one that runs none can be stopped. */
export function Draining({ worker }: { worker: Worker }) {
  if (!worker.draining) return null;
  const busy = busyOf(worker);
  const says = busy > 0 ? "takes no more jobs; those it runs go on" : "takes no more jobs and runs none";
  return (
    <span class="pill" title={says}>
      {busy > 0 ? "draining" : "drained"}
    </span>
  );
}

function ask(worker: Worker, reload: () => void) {
  const drains = !worker.draining;
  const act = drains ? "drain" : "resume";
  const path = `/v1/workers/${part(worker.id)}/${act}`;
  const busy = busyOf(worker);
  const goesOn =
    busy === 0 ? "It runs none now." : `${counted(busy, "job")} it runs now ${busy === 1 ? "goes" : "go"} on.`;
  const because = (reason: string) => (reason ? ` --reason ${quoted(reason)}` : "");
  dialog.value = (
    <ActDialog
      title={`${drains ? "Drain" : "Resume"} ${worker.id}`}
      says={
        drains
          ? `The worker takes no more jobs, until it is resumed or stops. ${goesOn}`
          : "The worker takes jobs of its queues again."
      }
      verb={drains ? "Drain" : "Resume"}
      reason="wanted"
      lines={(reason) => [
        `windlass workers ${act} ${quoted(worker.id)}${because(reason)}`,
        curl("POST", path, reason ? { reason } : undefined),
      ]}
      act={async (reason) => {
        await send("POST", path, reason ? { reason } : undefined);
        reload();
        tell(drains ? `${worker.id} takes no more jobs` : `${worker.id} takes jobs again`);
      }}
    />
  );
}

export function DrainButton({ worker, reload }: { worker: Worker; reload: () => void }) {
  if (!mayOperate()) return null;
  const word = worker.draining ? "Resume" : "Drain";
  return (
    <button type="button" class="button tiny" aria-label={`${word} ${worker.id}`} onClick={() => ask(worker, reload)}>
      {word}
    </button>
  );
}
