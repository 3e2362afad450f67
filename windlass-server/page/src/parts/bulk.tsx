// Acts on many jobs: first a look at what would happen, then the act on exactly those jobs, then what came of it.

import { useRef, useState } from "preact/hooks";
import { type Refused, type Schemas, send } from "../api/client.ts";
import { flags, write } from "../api/filter.ts";
import { me } from "../api/me.ts";
import { counted, number, quoted, stateWord } from "../words.ts";
import { Running } from "./bulk-run.tsx";
import { type Action, type Found, type Look, useLook } from "./bulk-set.ts";
import { curl, Terminal } from "./copy.tsx";
import { closeDialog, Dialog, dialog, tell } from "./dialog.tsx";
import { exportJobs } from "./export.tsx";
import { Problem } from "./notice.tsx";
import { Text } from "./text.tsx";

/** From so many jobs on, the number is to be typed. */
const TYPED_FROM = 1000;
const IDS_SHOWN_MAX = 20;

interface BulkProps {
  action?: Action;
  /** The jobs that were picked; or the conditions that all must meet. */
  jobs?: Found[];
  query?: URLSearchParams;
  title?: string;
  /** What is to be typed in place of the number, such as a queue's name. */
  typed?: string;
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
  ["edit", "Edit", "edited", "Gives jobs that have not ended another priority, or tags in place of theirs."],
  ["delete", "Delete", "deleted", "Removes ended jobs for good. This cannot be undone."],
];

const PRIORITIES: Schemas["Priority"][] = ["critical", "high", "normal", "low", "bulk"];

function pairs(text: string): Record<string, string> | undefined {
  const lines = text.split(/[\n,]/).map((line) => line.trim());
  const found = lines.filter((line) => line.includes("="));
  if (found.length === 0) return undefined;
  return Object.fromEntries(found.map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]));
}

function editOf(priority: string, tags: string): Schemas["Edit"] {
  const edit: Schemas["Edit"] = {};
  const given = pairs(tags);
  if (priority) edit.priority = priority as Schemas["Priority"];
  if (given) edit.tags = given;
  return edit;
}

function commandOf(action: Action, target: Look["target"], query: URLSearchParams | undefined, reason: string): string {
  const which = query ? flags(query) : ` ${(target.ids ?? []).join(" ")}`;
  return `windlass jobs ${action.replace("_", "-")}${which}${reason ? ` --reason ${quoted(reason)}` : ""}`;
}

function Sample({ jobs }: { jobs: Found[] }) {
  return (
    <details>
      <summary class="small muted">The first {jobs.length}</summary>
      <ul class="moments small">
        {jobs.map((job) => (
          <li key={job.id}>
            <code>{job.id.slice(0, 8)}</code>
            <span>
              <Text>{job.type}</Text> · {stateWord[job.state].toLowerCase()}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Counted({ found, past }: { found: Look | undefined; past: string }) {
  const takes = found?.takes ?? 0;
  const looking = found?.state !== "ready";
  return (
    <p aria-live="polite">
      <strong>
        {looking ? `Looking… ${number(takes)} so far` : counted(takes, "job")} will be {past}.
      </strong>{" "}
      {found && found.leaves > 0
        ? `${number(found.leaves)}${found.leavesMore ? "+" : ""} that match are left alone: their state does not allow it.`
        : ""}
    </p>
  );
}

function EditFields({ set }: { set: (edit: Schemas["Edit"]) => void }) {
  const [priority, setPriority] = useState("");
  const [tags, setTags] = useState("");
  return (
    <div class="grid-2 close">
      <label class="field">
        <span>Priority</span>
        <select
          value={priority}
          onChange={(event) => {
            setPriority(event.currentTarget.value);
            set(editOf(event.currentTarget.value, tags));
          }}
        >
          <option value="">stays</option>
          {PRIORITIES.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>Tags (empty: stay)</span>
        <input
          placeholder="customer=7, region=eu"
          value={tags}
          onInput={(event) => {
            setTags(event.currentTarget.value);
            set(editOf(priority, event.currentTarget.value));
          }}
        />
      </label>
    </div>
  );
}

function Bulk(props: BulkProps) {
  const [action, setAction] = useState<Action>(props.action ?? "requeue");
  const { found, problem: lookProblem } = useLook(action, props.jobs, props.query);
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [edit, setEdit] = useState<Schemas["Edit"]>({});
  const [operation, setOperation] = useState("");
  const [problem, setProblem] = useState<Refused>();
  const sent = useRef(false);
  const [, word, past, says] = ACTS.find(([own]) => own === action)!;
  const takes = found?.takes ?? 0;
  const needsReason = action === "delete" || action === "dead_letter" || props.typed !== undefined;
  const needsNumber = action === "delete" || takes >= TYPED_FROM;
  const wanted = props.typed ?? (needsNumber ? String(takes) : "");
  const told = reason.trim();
  const body = { action, ...found?.target, ...(action === "edit" ? { edit } : {}), reason: told };
  const ready =
    found?.state === "ready" &&
    takes > 0 &&
    !(needsReason && !told) &&
    !(action === "edit" && Object.keys(edit).length === 0) &&
    (wanted === "" || typed.trim() === wanted || typed.replace(/\D/g, "") === wanted);
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
      <Dialog title={`${word} ${counted(takes, "job")}`}>
        <Running id={operation} word={past} of={takes} />
      </Dialog>
    );
  const short = props.query !== undefined || (takes > 0 && takes <= IDS_SHOWN_MAX);
  return (
    <Dialog
      title={props.title ?? (props.query ? "Act on all that match" : `Act on ${counted(props.jobs!.length, "job")}`)}
    >
      {props.query ? (
        <p>
          <code>
            <Text>{write(props.query)}</Text>
          </code>
        </p>
      ) : null}
      {props.typed === undefined ? (
        <div class="row choices" role="radiogroup" aria-label="Act">
          {ACTS.map(([own, label]) => (
            <label key={own} class="check">
              <input type="radio" name="act" checked={action === own} onChange={() => setAction(own)} />
              {label}
            </label>
          ))}
        </div>
      ) : null}
      <p class="muted">{says}</p>
      {action === "edit" ? <EditFields set={setEdit} /> : null}
      <Counted found={found} past={past} />
      {props.query ? (
        <p class="small muted">Frozen as of now: jobs that change or come to match from now on are left alone.</p>
      ) : null}
      {found && found.sample.length > 0 ? <Sample jobs={found.sample} /> : null}
      {action === "delete" && props.query && !me.value?.payloads_hidden ? (
        <p class="small">
          <button type="button" class="button tiny" onClick={() => exportJobs(props.query!)}>
            Export them first
          </button>
        </p>
      ) : null}
      <label class="field">
        <span>Reason {needsReason ? "(needed)" : "(kept with the act)"}</span>
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      {wanted !== "" && takes > 0 ? (
        <label class="field">
          <span>
            Type <code>{wanted}</code> to go on
          </span>
          <input autocomplete="off" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
      ) : null}
      {short && found ? (
        <Terminal lines={[commandOf(action, found.target, props.query, told), curl("POST", "/v1/operations", body)]} />
      ) : null}
      {(problem ?? lookProblem) ? <Problem problem={(problem ?? lookProblem)!} /> : null}
      <div class="actions">
        <button type="button" class="button" onClick={closeDialog}>
          Cancel
        </button>
        <button
          type="submit"
          class={`button ${action === "delete" || props.typed !== undefined ? "risky" : "primary"}`}
          disabled={!ready}
          onClick={act}
        >
          {word} {takes > 0 ? counted(takes, "job") : ""}
        </button>
      </div>
    </Dialog>
  );
}
