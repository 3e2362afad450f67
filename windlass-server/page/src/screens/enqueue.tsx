// Submits one job, and shows the command that does the same.

import { useEffect, useState } from "preact/hooks";
import { answer, ask, type Job, type Refused, type Schemas, send } from "../api/client.ts";
import { mayProduce } from "../api/me.ts";
import { Command, curl, quoted } from "../parts/copy.tsx";
import { tell } from "../parts/dialog.tsx";
import { read } from "../parts/json.tsx";
import { useKnown } from "../parts/known.ts";
import { Empty, Problem } from "../parts/notice.tsx";
import { go, href, query } from "../router.ts";

const PRIORITIES: Schemas["Priority"][] = ["critical", "high", "normal", "low", "bulk"];

interface Form {
  type: string;
  queue: string;
  payload: string;
  priority: string;
  delay: string;
  key: string;
  tags: string;
  attempts: string;
  timeout: string;
}

const EMPTY: Form = {
  type: "",
  queue: "",
  payload: "{}",
  priority: "normal",
  delay: "",
  key: "",
  tags: "",
  attempts: "",
  timeout: "",
};

function pairs(text: string): [string, string][] {
  return text
    .split(/[\n,]/)
    .map((pair) => pair.trim())
    .filter((pair) => pair.includes("="))
    .map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]);
}

/** The job as JSON. The payload goes in as it was typed, so that no number is rounded. */
function body(form: Form): string {
  const job: Record<string, unknown> = { type: form.type };
  if (form.queue) job.queue = form.queue;
  if (form.priority !== "normal") job.priority = form.priority;
  if (form.delay) job.delay = form.delay;
  if (form.key) job.idempotency_key = form.key;
  if (form.attempts) job.max_attempts = Number(form.attempts);
  if (form.timeout) job.execution_timeout = form.timeout;
  if (pairs(form.tags).length > 0) job.tags = Object.fromEntries(pairs(form.tags));
  return `${JSON.stringify(job).slice(0, -1)},"payload":${form.payload}}`;
}

function command(form: Form): string {
  const words = ["windlass enqueue", quoted(form.type || "TYPE")];
  if (form.queue) words.push("--queue", quoted(form.queue));
  words.push("--payload", quoted(form.payload));
  if (form.priority !== "normal") words.push("--priority", form.priority);
  if (form.delay) words.push("--delay", quoted(form.delay));
  if (form.key) words.push("--key", quoted(form.key));
  for (const [key, value] of pairs(form.tags)) words.push("--tag", quoted(`${key}=${value}`));
  if (form.attempts) words.push("--attempts", quoted(form.attempts));
  if (form.timeout) words.push("--timeout", quoted(form.timeout));
  return words.join(" ");
}

/** The fields of a job that is there, with its payload as it was written. */
async function fieldsOf(id: string): Promise<Form> {
  const job = await ask<Job>(`/v1/jobs/${encodeURIComponent(id)}?payloads=false`);
  const payload = await (await answer(`/v1/jobs/${job.id}/payload`)).text();
  return {
    ...EMPTY,
    type: job.type,
    queue: job.queue ?? "",
    payload,
    priority: job.priority ?? "normal",
    tags: Object.entries(job.tags ?? {})
      .map(([key, value]) => `${key}=${value}`)
      .join(", "),
    attempts: String(job.max_attempts),
    timeout: job.execution_timeout ?? "",
  };
}

export function EnqueueScreen() {
  const [form, setForm] = useState(EMPTY);
  const from = query.value.get("from") ?? "";
  const [problem, setProblem] = useState<Refused>();
  const [busy, setBusy] = useState(false);
  const known = useKnown();
  const isJson = read(form.payload) !== null;
  useEffect(() => {
    if (!from) return;
    fieldsOf(from)
      .then(setForm)
      .catch((error) => setProblem(error as Refused));
  }, [from]);
  if (!mayProduce()) return <Empty says="You may only look." />;
  const set = (name: keyof Form) => (event: { currentTarget: { value: string } }) =>
    setForm({ ...form, [name]: event.currentTarget.value });
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      const made = await send<Schemas["Inserted"]>("POST", "/v1/jobs", body(form));
      go(`/jobs/${made.id}`);
      tell(made.existing ? "A job with this key was there already" : "Submitted");
    } catch (error) {
      setProblem(error as Refused);
      setBusy(false);
    }
  };
  return (
    <>
      <div class="head">
        <h1>Enqueue</h1>
        {from ? (
          <span class="muted">
            from <a href={href(`/jobs/${from}`)}>{from.slice(0, 8)}</a>
          </span>
        ) : null}
      </div>
      <form class="grid-3" onSubmit={submit}>
        <div class="card">
          <div class="grid-2">
            <label class="field">
              <span>Type</span>
              <input required list="types" value={form.type} onInput={set("type")} autocomplete="off" />
              <datalist id="types">
                {(known.type ?? []).map((type) => (
                  <option key={type} value={type} />
                ))}
              </datalist>
            </label>
            <label class="field">
              <span>Queue</span>
              <input list="queues" placeholder="default" value={form.queue} onInput={set("queue")} autocomplete="off" />
              <datalist id="queues">
                {(known.queue ?? []).map((queue) => (
                  <option key={queue} value={queue} />
                ))}
              </datalist>
            </label>
          </div>
          <label class="field">
            <span>Payload, JSON</span>
            <textarea
              rows={8}
              spellcheck={false}
              value={form.payload}
              onInput={set("payload")}
              aria-invalid={!isJson}
            />
          </label>
          {isJson ? null : (
            <p class="notice warn" role="alert">
              This is no JSON yet.
            </p>
          )}
          <div class="grid-2">
            <label class="field">
              <span>Priority</span>
              <select value={form.priority} onChange={set("priority")}>
                {PRIORITIES.map((one) => (
                  <option key={one}>{one}</option>
                ))}
              </select>
            </label>
            <label class="field">
              <span>Not before</span>
              <input placeholder="now; or 10m, 2h" value={form.delay} onInput={set("delay")} />
            </label>
            <label class="field">
              <span>Idempotency key</span>
              <input value={form.key} onInput={set("key")} autocomplete="off" />
            </label>
            <label class="field">
              <span>Tags</span>
              <input placeholder="customer=7, region=eu" value={form.tags} onInput={set("tags")} />
            </label>
            <label class="field">
              <span>Most tries</span>
              <input inputMode="numeric" placeholder="3" value={form.attempts} onInput={set("attempts")} />
            </label>
            <label class="field">
              <span>Each may take</span>
              <input placeholder="30m" value={form.timeout} onInput={set("timeout")} />
            </label>
          </div>
          {problem ? <Problem problem={problem} /> : null}
          <div class="row">
            <button type="submit" class="button primary" disabled={busy || !isJson || form.type === ""}>
              {busy ? "Submitting…" : "Enqueue"}
            </button>
          </div>
        </div>
        <div class="card">
          <h2>The same from a terminal</h2>
          <Command line={command(form)} />
          {isJson && form.type ? (
            <Command line={`${curl("POST", "/v1/jobs")} --json ${quoted(body(form))}`.replace(" -X POST", "")} />
          ) : null}
        </div>
      </form>
    </>
  );
}
