// The server: what it is, who looks, and how the page behaves for them.

import { useState } from "preact/hooks";
import { ask, base, type Refused, type Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { me } from "../api/me.ts";
import { letters, setLetters } from "../parts/keys.ts";
import { Loaded, Problem } from "../parts/notice.tsx";
import { dense, setDense, setTheme, type Theme, theme } from "../parts/theme.ts";
import { inUtc, setUtc } from "../parts/time.tsx";
import { bytes, spaced } from "../words.ts";

const MAY: Record<string, string> = {
  read: "look at everything",
  submit: "submit jobs and workflows",
  produce: "look, and submit jobs and workflows",
  work: "look, submit, and claim jobs",
  operate: "look, submit, and act on jobs, queues, workflows and schedules",
  admin: "everything",
};

function Check() {
  const [findings, setFindings] = useState<string[]>();
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Refused>();
  const look = async () => {
    setBusy(true);
    setProblem(undefined);
    try {
      setFindings((await ask<Schemas["Findings"]>("/v1/check")).items);
    } catch (error) {
      setProblem(error as Refused);
    }
    setBusy(false);
  };
  return (
    <section class="card">
      <h2>Check of the store</h2>
      <p class="muted">Looks at every job for contradictions. On a large store this takes a while.</p>
      <div class="row">
        <button type="button" class="button" disabled={busy} onClick={look}>
          {busy ? "Checking…" : "Check the store"}
        </button>
        {findings?.length === 0 ? <span class="completed">No contradiction was found.</span> : null}
      </div>
      {findings?.map((finding) => (
        <p key={finding} class="notice bad">
          {finding}
        </p>
      ))}
      {problem ? <Problem problem={problem} /> : null}
    </section>
  );
}

function Choices() {
  return (
    <section class="card">
      <h2>This browser</h2>
      <label class="field">
        <span>Theme</span>
        <select value={theme.value} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
          <option value="system">as the system has it</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
      </label>
      <label class="field">
        <span>Times</span>
        <select value={inUtc.value ? "utc" : "local"} onChange={(event) => setUtc(event.currentTarget.value === "utc")}>
          <option value="local">in the zone of this browser</option>
          <option value="utc">in UTC</option>
        </select>
      </label>
      <label class="field">
        <span>Rows</span>
        <select
          value={dense.value ? "dense" : "roomy"}
          onChange={(event) => setDense(event.currentTarget.value === "dense")}
        >
          <option value="roomy">with room between them</option>
          <option value="dense">close together</option>
        </select>
      </label>
      <label class="check">
        <input type="checkbox" checked={letters.value} onChange={(event) => setLetters(event.currentTarget.checked)} />
        Single letters are keys (press ? for the list)
      </label>
    </section>
  );
}

export function ServerScreen() {
  const facts = useResource<Schemas["ServerFacts"]>("/v1/server");
  const known = me.value;
  return (
    <>
      <div class="head">
        <h1>Server</h1>
      </div>
      <div class="grid-2">
        <Loaded of={facts}>
          {(data) => (
            <section class="card">
              <h2>Windlass {data.version}</h2>
              <dl class="facts">
                <dt>Store</dt>
                <dd>{data.store}</dd>
                {data.schema ? (
                  <>
                    <dt>Tables</dt>
                    <dd>version {data.schema}</dd>
                  </>
                ) : null}
                <dt>Answers to</dt>
                <dd>{data.hosts.length > 0 ? `its address, and ${data.hosts.join(", ")}` : "its address alone"}</dd>
                <dt>Token</dt>
                <dd>{data.tokens ? "needed" : "none: whoever reaches this address may do everything"}</dd>
                <dt>Webhooks</dt>
                <dd>{data.webhooks ? "delivered" : "not delivered: there is no secret to sign them with"}</dd>
                <dt>Largest payload</dt>
                <dd>{bytes(data.payload_bytes)}</dd>
                <dt>Largest batch</dt>
                <dd>{bytes(data.batch_bytes)}</dd>
                <dt>Kept: completed</dt>
                <dd>{spaced(data.retention.completed)}</dd>
                <dt>Kept: cancelled</dt>
                <dd>{spaced(data.retention.cancelled)}</dd>
                <dt>Kept: failed</dt>
                <dd>{spaced(data.retention.failed)}</dd>
                <dt>Kept: dead-letter</dt>
                <dd>{spaced(data.retention.dead_letter)}</dd>
              </dl>
              <p class="row">
                <a href={`${base}/v1/openapi.json`}>API description</a>
                <a href={`${base}/metrics`}>Metrics</a>
              </p>
            </section>
          )}
        </Loaded>
        <section class="card">
          <h2>You</h2>
          <dl class="facts">
            <dt>Name</dt>
            <dd>{known?.name ?? "unnamed: no token is asked for"}</dd>
            <dt>May</dt>
            <dd>
              {known ? MAY[known.role] : ""}
              {known?.read_only ? "; the server is read-only" : ""}
            </dd>
            <dt>Payloads</dt>
            <dd>{known?.payloads_hidden ? "hidden from you" : "shown"}</dd>
          </dl>
        </section>
        <Choices />
        {known?.role === "admin" ? <Check /> : null}
      </div>
    </>
  );
}
