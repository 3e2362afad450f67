// Creates or changes a schedule, with a look at what it would do. Whoever was faster is shown, not overwritten.

import { useState } from "preact/hooks";
import { part, type Refused, type Schemas, send } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { go } from "../router.ts";
import { curl, Terminal } from "./copy.tsx";
import { tell } from "./dialog.tsx";
import { Difference } from "./difference.tsx";
import { Firings } from "./firings.tsx";
import { read } from "./json.tsx";
import { Problem } from "./notice.tsx";

type New = Schemas["NewSchedule"];

interface Form {
  name: string;
  kind: "cron" | "every" | "delay";
  cron: string;
  zone: string;
  span: string;
  type: string;
  queue: string;
  payload: string;
  missed: NonNullable<New["missed"]>;
  missedMax: string;
  overlap: NonNullable<New["overlap"]>;
}

function formOf(of?: Schemas["Schedule"]): Form {
  const own = of?.schedule;
  return {
    name: own?.name ?? "",
    kind: own?.every ? "every" : own?.delay ? "delay" : "cron",
    cron: own?.cron ?? "30 2 * * *",
    zone: own?.zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC",
    span: own?.every ?? own?.delay ?? "1h",
    type: own?.job.type ?? "",
    queue: own?.job.queue ?? "",
    payload: own?.job.payload === undefined ? "{}" : JSON.stringify(own.job.payload),
    missed: own?.missed ?? "coalesce",
    missedMax: String(own?.missed_max ?? 10),
    overlap: own?.overlap ?? "skip",
  };
}

function bodyOf(form: Form, own?: New): New {
  const job = { ...own?.job, type: form.type, payload: JSON.parse(form.payload) as unknown } as New["job"];
  if (form.queue) job.queue = form.queue;
  return {
    name: form.name,
    ...(form.kind === "cron" ? { cron: form.cron, zone: form.zone } : { [form.kind]: form.span }),
    missed: form.missed,
    ...(form.missed === "all" ? { missed_max: Number(form.missedMax) } : {}),
    overlap: form.overlap,
    job,
  };
}

const MISSED: Record<Form["missed"], string> = {
  coalesce: "After a stop it fires once for all firings that were missed.",
  skip: "Firings that fall into a stop are left out.",
  all: "After a stop it fires for each firing that was missed, one by one, up to the number given.",
};

const OVERLAP: Record<Form["overlap"], string> = {
  skip: "A firing whose last job is still unfinished is left out.",
  queue_one: "A firing whose last job is still unfinished waits for it; further ones are left out.",
  allow: "It fires whether or not its last job has finished; several may run at once.",
};

/** What the choices would do. */
function Consequences({ missed, overlap }: Pick<Form, "missed" | "overlap">) {
  return (
    <section class="card" aria-label="What would happen">
      <h2>What would happen</h2>
      <p>{MISSED[missed]}</p>
      <p>{OVERLAP[overlap]}</p>
    </section>
  );
}

interface ConflictProps {
  mine: New;
  load: () => void;
  save: (version: number) => void;
}

/** Both versions, where somebody was faster: theirs as it stands now, and what is in the form. */
function Conflict({ mine, load, save }: ConflictProps) {
  const theirs = useResource<Schemas["Schedule"]>(`/v1/schedules/${part(mine.name ?? "")}`);
  const text = (value: unknown) => JSON.stringify(value, null, 2);
  const ordered = (value: New) =>
    text(Object.fromEntries(Object.entries(value).sort(([one], [other]) => one.localeCompare(other))));
  return (
    <section class="stack close" aria-label="Conflict">
      <p class="notice warn">Somebody has changed it since it was loaded.</p>
      {theirs.data ? (
        <>
          <p class="small muted">
            <span aria-hidden="true">− </span>what is there now (version {theirs.data.version}),{" "}
            <span aria-hidden="true">+ </span>what you wrote
          </p>
          <Difference before={ordered(theirs.data.schedule)} after={ordered(mine)} label="Both versions" />
          <div class="row">
            <button type="button" class="button" onClick={load}>
              Load what is there now
            </button>
            <button type="button" class="button risky" onClick={() => save(theirs.data!.version)}>
              Save mine over it
            </button>
          </div>
        </>
      ) : null}
    </section>
  );
}

export function ScheduleForm({ of, reload }: { of?: Schemas["Schedule"]; reload?: () => void }) {
  const [form, setForm] = useState(() => formOf(of));
  const [problem, setProblem] = useState<Refused>();
  const [busy, setBusy] = useState(false);
  const isJson = read(form.payload) !== null;
  const set = (name: keyof Form) => (event: { currentTarget: { value: string } }) =>
    setForm({ ...form, [name]: event.currentTarget.value });
  const ready = isJson && form.name !== "" && form.type !== "";
  const path = `/v1/schedules/${part(form.name)}`;
  const put = async (version: number | undefined) => {
    setBusy(true);
    setProblem(undefined);
    try {
      const guard: Record<string, string> =
        version === undefined ? { "if-none-match": "*" } : { "if-match": `"${version}"` };
      await send("PUT", path, bodyOf(form, of?.schedule), guard);
      go(`/schedules/${encodeURIComponent(form.name)}`);
      tell(of ? "Saved" : "Created");
    } catch (error) {
      setProblem(error as Refused);
      setBusy(false);
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void put(of?.version);
  };
  return (
    <form class="grid-2" onSubmit={submit}>
      <div class="card">
        <label class="field">
          <span>Name</span>
          <input required value={form.name} readOnly={of !== undefined} onInput={set("name")} autocomplete="off" />
        </label>
        <label class="field">
          <span>Fires</span>
          <select value={form.kind} onChange={set("kind")}>
            <option value="cron">at the times of a cron expression</option>
            <option value="every">at a fixed rate</option>
            <option value="delay">some time after its last job ended</option>
          </select>
        </label>
        {form.kind === "cron" ? (
          <div class="grid-2">
            <label class="field">
              <span>Cron</span>
              <input class="mono" required value={form.cron} onInput={set("cron")} autocomplete="off" />
            </label>
            <label class="field">
              <span>Zone</span>
              <input required value={form.zone} onInput={set("zone")} autocomplete="off" />
            </label>
          </div>
        ) : (
          <label class="field">
            <span>{form.kind === "every" ? "Every" : "After"}</span>
            <input required placeholder="10m" value={form.span} onInput={set("span")} />
          </label>
        )}
        <div class="grid-2">
          <label class="field">
            <span>Type</span>
            <input required value={form.type} onInput={set("type")} autocomplete="off" />
          </label>
          <label class="field">
            <span>Queue</span>
            <input placeholder="default" value={form.queue} onInput={set("queue")} autocomplete="off" />
          </label>
        </div>
        <label class="field">
          <span>Payload, JSON</span>
          <textarea spellcheck={false} value={form.payload} onInput={set("payload")} aria-invalid={!isJson} />
        </label>
        <div class="grid-2">
          <label class="field">
            <span>Firings that were missed</span>
            <select value={form.missed} onChange={set("missed")}>
              <option value="coalesce">fire once, together</option>
              <option value="skip">are left out</option>
              <option value="all">fire one by one</option>
            </select>
          </label>
          {form.missed === "all" ? (
            <label class="field">
              <span>At most</span>
              <input inputMode="numeric" value={form.missedMax} onInput={set("missedMax")} />
            </label>
          ) : null}
          <label class="field">
            <span>While its last job is unfinished</span>
            <select value={form.overlap} onChange={set("overlap")}>
              <option value="skip">it does not fire</option>
              <option value="queue_one">one more waits</option>
              <option value="allow">it fires all the same</option>
            </select>
          </label>
        </div>
        {problem ? <Problem problem={problem} /> : null}
        {problem?.status === 412 && reload ? (
          <Conflict mine={bodyOf(form, of?.schedule)} load={reload} save={(version) => void put(version)} />
        ) : null}
        <div class="row">
          <button type="submit" class="button primary" disabled={busy || !ready}>
            {of ? "Save" : "Create"}
          </button>
        </div>
        {ready ? <Terminal lines={[curl("PUT", path, bodyOf(form, of?.schedule))]} /> : null}
      </div>
      <div class="stack">
        <Firings timing={form.kind === "cron" ? { cron: form.cron, zone: form.zone } : { [form.kind]: form.span }} />
        <Consequences missed={form.missed} overlap={form.overlap} />
      </div>
    </form>
  );
}
