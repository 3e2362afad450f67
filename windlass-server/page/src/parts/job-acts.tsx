// What can be done to one job in its state. Dialogs only where something cannot be undone, or is to be told.

import { useState } from "preact/hooks";
import { type Job, type Schemas, send } from "../api/client.ts";
import { mayOperate, mayProduce, me } from "../api/me.ts";
import { go, href } from "../router.ts";
import { DEAD, ENDED } from "../words.ts";
import { curl, quoted } from "./copy.tsx";
import { ActDialog, closeDialog, dialog, tell } from "./dialog.tsx";

interface Props {
  job: Job;
  reload: () => void;
}

function why(reason: string): string {
  return reason ? ` --reason ${quoted(reason)}` : "";
}

function Requeue({ job, reload }: Props) {
  const [keep, setKeep] = useState(false);
  const [dependents, setDependents] = useState(false);
  const [at, setAt] = useState("");
  const body = (reason: string): Schemas["Requeue"] => ({
    reason,
    keep_counters: keep,
    with_dependents: dependents,
    ...(at ? { run_at: new Date(at).toISOString() } : {}),
  });
  const flags = `${keep ? " --keep-counters" : ""}${dependents ? " --with-dependents" : ""}${at ? ` --run-at ${new Date(at).toISOString()}` : ""}`;
  return (
    <ActDialog
      title="Requeue"
      says="The job goes back to its queue and is tried again."
      verb="Requeue"
      reason="wanted"
      lines={(reason) => [
        `windlass jobs requeue ${job.id}${flags}${why(reason)}`,
        curl("POST", `/v1/jobs/${job.id}/requeue`, body(reason)),
      ]}
      act={async (reason) => {
        await send("POST", `/v1/jobs/${job.id}/requeue`, body(reason));
        reload();
        tell("Requeued");
      }}
    >
      <label class="check">
        <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} />
        Keep its counters: the tries it has used stay used
      </label>
      <label class="check">
        <input type="checkbox" checked={dependents} onChange={(event) => setDependents(event.currentTarget.checked)} />
        With the jobs that died because of it
      </label>
      <label class="field">
        <span>Not before (empty: now)</span>
        <input type="datetime-local" value={at} onInput={(event) => setAt(event.currentTarget.value)} />
      </label>
    </ActDialog>
  );
}

function Cancel({ job, reload }: Props) {
  const [force, setForce] = useState(false);
  const runs = job.state === "running";
  return (
    <ActDialog
      title="Cancel"
      says={runs ? "Its handler is asked to stop." : "The job ends at once and is not run."}
      verb="Cancel the job"
      risky
      reason="wanted"
      lines={(reason) => [
        `windlass jobs cancel ${job.id}${force ? " --force" : ""}${why(reason)}`,
        curl("POST", `/v1/jobs/${job.id}/cancel`, { force, reason }),
      ]}
      act={async (reason) => {
        await send("POST", `/v1/jobs/${job.id}/cancel`, { force, reason });
        reload();
        tell(runs && !force ? "Its handler is asked to stop" : "Cancelled");
      }}
    >
      {runs ? (
        <label class="check">
          <input type="checkbox" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} />
          By force: it loses its lease at once, whatever its handler does
        </label>
      ) : null}
    </ActDialog>
  );
}

function DeadLetter({ job, reload }: Props) {
  return (
    <ActDialog
      title="Dead-letter"
      says="The job is set aside as dead. It can be requeued later."
      verb="Dead-letter"
      risky
      reason="needed"
      lines={(reason) => [
        `windlass jobs dead-letter ${job.id}${why(reason)}`,
        curl("POST", `/v1/jobs/${job.id}/dead-letter`, { reason }),
      ]}
      act={async (reason) => {
        await send("POST", `/v1/jobs/${job.id}/dead-letter`, { reason });
        reload();
        tell("Dead-lettered");
      }}
    />
  );
}

function Delete({ job }: Props) {
  return (
    <ActDialog
      title="Delete"
      says="The job, its attempts and its log lines are removed. This cannot be undone."
      verb="Delete for good"
      risky
      lines={() => [`windlass jobs delete ${job.id}`, curl("DELETE", `/v1/jobs/${job.id}`)]}
      act={async () => {
        await send("DELETE", `/v1/jobs/${job.id}`);
        go("/jobs");
        tell("Deleted");
      }}
    />
  );
}

const PRIORITIES: Schemas["Priority"][] = ["critical", "high", "normal", "low", "bulk"];

function Edit({ job, reload }: Props) {
  const [priority, setPriority] = useState(job.priority ?? "normal");
  const [tags, setTags] = useState(
    Object.entries(job.tags ?? {})
      .map(([key, value]) => `${key}=${value}`)
      .join("\n"),
  );
  const pairs = tags.split("\n").filter((line) => line.trim() !== "");
  const wrong = pairs.find((line) => !line.includes("="));
  const body = (): Schemas["Edit"] => ({
    priority,
    tags: Object.fromEntries(
      pairs.map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]),
    ),
  });
  return (
    <ActDialog
      title="Edit"
      says="Priority and tags can change; what the job is to do cannot."
      verb="Save"
      blocked={wrong !== undefined}
      lines={() => [curl("PATCH", `/v1/jobs/${job.id}`, body())]}
      act={async () => {
        await send("PATCH", `/v1/jobs/${job.id}`, body());
        reload();
        tell("Saved");
      }}
    >
      <label class="field">
        <span>Priority</span>
        <select value={priority} onChange={(event) => setPriority(event.currentTarget.value as Schemas["Priority"])}>
          {PRIORITIES.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>Tags, one key=value a line</span>
        <textarea value={tags} onInput={(event) => setTags(event.currentTarget.value)} />
      </label>
      {wrong !== undefined ? <p class="notice warn">“{wrong}” has no =</p> : null}
    </ActDialog>
  );
}

function Clone({ job }: Props) {
  const submit = async () => {
    const made = await send<Schemas["Inserted"]>("POST", `/v1/jobs/${job.id}/clone`);
    go(`/jobs/${made.id}`);
    tell("A copy was submitted", <a href={href(`/jobs/${job.id}`)}>the original</a>);
  };
  return (
    <ActDialog
      title="Clone"
      says="A new job with the same payload and options is submitted. This one stays as it is."
      verb="Submit the copy"
      lines={() => [`windlass jobs clone ${job.id}`, curl("POST", `/v1/jobs/${job.id}/clone`)]}
      act={submit}
    >
      {mayProduce() && !me.value?.payloads_hidden ? (
        <p>
          <a href={href(`/enqueue?from=${job.id}`)} onClick={closeDialog}>
            Change the payload first
          </a>
        </p>
      ) : null}
    </ActDialog>
  );
}

export function JobActs(props: Props) {
  const { job } = props;
  if (!mayOperate()) return null;
  const ended = ENDED.includes(job.state);
  const open = (shown: typeof dialog.value) => () => {
    dialog.value = shown;
  };
  return (
    <div class="actions">
      {DEAD.includes(job.state) ? (
        <button type="button" class="button primary" onClick={open(<Requeue {...props} />)}>
          Requeue
        </button>
      ) : null}
      {!ended ? (
        <button type="button" class="button" onClick={open(<Cancel {...props} />)}>
          Cancel
        </button>
      ) : null}
      {!ended ? (
        <button type="button" class="button" onClick={open(<DeadLetter {...props} />)}>
          Dead-letter
        </button>
      ) : null}
      {!ended ? (
        <button type="button" class="button" onClick={open(<Edit {...props} />)}>
          Edit
        </button>
      ) : null}
      <button type="button" class="button" onClick={open(<Clone {...props} />)}>
        Clone
      </button>
      {ended ? (
        <button type="button" class="button risky" onClick={open(<Delete {...props} />)}>
          Delete
        </button>
      ) : null}
    </div>
  );
}
