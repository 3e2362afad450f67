// What can be done to the flow of a queue and of its keys: each says itself as a command and as a curl line first.

import { useState } from "preact/hooks";
import { part, type Schemas, send } from "../api/client.ts";
import { curl, quoted } from "./copy.tsx";
import { ActDialog, dialog, tell } from "./dialog.tsx";
import {
  type Control,
  controlCommand,
  controlOf,
  type Fields,
  fieldsOf,
  type Limit,
  rateText,
  readCount,
  readRate,
} from "./flow-words.ts";

interface Of {
  queue: string;
  reload: () => void;
}

const SPAN = /^(\d+(d|h|m|s|ms))+$/;

function Field(props: { name: string; value: string; hint?: string; bad?: boolean; set: (value: string) => void }) {
  return (
    <label class="field">
      <span>{props.name}</span>
      <input
        autocomplete="off"
        value={props.value}
        placeholder={props.hint}
        aria-invalid={props.bad ?? false}
        onInput={(event) => props.set(event.currentTarget.value)}
      />
    </label>
  );
}

function ControlDialog({ queue, reload, now }: Of & { now: Schemas["Controlled"] | undefined }) {
  const [fields, setFields] = useState(() => fieldsOf(now?.control));
  const set = (name: keyof Fields) => (value: string | boolean) => setFields({ ...fields, [name]: value });
  const control: Control | null = controlOf(fields, now?.control);
  const path = `/v1/queues/${part(queue)}/control`;
  const act = async () => {
    // Somebody else's change in the meantime is not written over.
    await send("PUT", path, control, now ? { "if-match": `"${now.version}"` } : {});
    reload();
    tell(`The flow of ${queue} is controlled; it holds for every claim from now on`);
  };
  const count = (name: "running" | "keyRunning" | "burst", label: string) => (
    <Field name={label} value={fields[name]} set={set(name)} bad={readCount(fields[name]) === null} />
  );
  const rate = (name: "rate" | "keyRate", label: string) => (
    <Field name={label} hint="100/s" value={fields[name]} set={set(name)} bad={readRate(fields[name]) === null} />
  );
  return (
    <ActDialog
      title={`Flow of ${queue}`}
      says="How much of the queue may run and start. What is empty has no limit. Running jobs go on."
      verb="Set"
      blocked={control === null || Object.keys(control).length === 0}
      lines={() => (control === null ? [] : [controlCommand(queue, control), curl("PUT", path, control)])}
      act={act}
    >
      {now?.control.from_code ? (
        <p class="notice">A program declares this control. What is set here stays, whatever the program says.</p>
      ) : null}
      <div class="grid-2">
        {count("running", "Run at once")}
        {rate("rate", "Start, such as 100/s or 10/min")}
        {count("burst", "Start at one moment")}
        <Field name="Types, such as mail.send=5" value={fields.types} set={set("types")} />
        {count("keyRunning", "Of each key, run at once")}
        {rate("keyRate", "Of each key, start")}
        <Field
          name="Ageing"
          hint="30s"
          value={fields.ageing}
          set={set("ageing")}
          bad={fields.ageing !== "" && !SPAN.test(fields.ageing)}
        />
        <label class="field">
          <span>Order within a key</span>
          <select
            value={fields.ordered}
            onChange={(event) => set("ordered")(event.currentTarget.value as Fields["ordered"])}
          >
            <option value="">none</option>
            <option value="halt">one at a time; a failed job halts its key</option>
            <option value="go_on">one at a time; a failed job is passed over</option>
          </select>
        </label>
      </div>
      <label class="row">
        <input type="checkbox" checked={fields.fair} onChange={(event) => set("fair")(event.currentTarget.checked)} />
        Keys share by what runs, then by turn
      </label>
    </ActDialog>
  );
}

export function setControl(of: Of, now: Schemas["Controlled"] | undefined) {
  dialog.value = <ControlDialog {...of} now={now} />;
}

export function clearControl({ queue, reload }: Of) {
  const path = `/v1/queues/${part(queue)}/control`;
  dialog.value = (
    <ActDialog
      title={`End the control of ${queue}`}
      says="Its jobs are then claimed as those of any queue. Limits of keys and holds are forgotten."
      verb="End the control"
      risky
      lines={() => [`windlass queues control ${quoted(queue)} --clear`, curl("DELETE", path)]}
      act={async () => {
        await send("DELETE", path);
        reload();
        tell(`The flow of ${queue} is not controlled any more`);
      }}
    />
  );
}

function HoldDialog({ queue, reload, gate }: Of & { gate: string | undefined }) {
  const [time, setTime] = useState("5m");
  const own = `/v1/queues/${part(queue)}`;
  const path = gate === undefined ? `${own}/hold` : `${own}/keys/${part(gate)}/hold`;
  const command =
    gate === undefined
      ? `windlass queues control ${quoted(queue)} --hold ${time}`
      : `windlass queues key ${quoted(queue)} ${quoted(gate)} --hold ${time}`;
  const what = gate === undefined ? queue : `the key ${gate}`;
  return (
    <ActDialog
      title={`Hold ${what}`}
      says="Nothing of it starts for this long. Running jobs go on."
      verb="Hold"
      blocked={!SPAN.test(time)}
      lines={() => [command, curl("POST", path, { time })]}
      act={async () => {
        await send("POST", path, { time });
        reload();
        tell(`Nothing of ${what} starts for ${time}`);
      }}
    >
      <Field name="For" value={time} set={setTime} bad={!SPAN.test(time)} />
    </ActDialog>
  );
}

/** Holds a queue or, with a gate, one of its keys. */
export function hold(of: Of, gate?: string) {
  dialog.value = <HoldDialog {...of} gate={gate} />;
}

/** Lifts the hold of a queue. */
export function lift({ queue, reload }: Of) {
  const path = `/v1/queues/${part(queue)}/hold`;
  dialog.value = (
    <ActDialog
      title={`Lift the hold of ${queue}`}
      says="Its jobs start again as its limits allow. Without a hold nothing changes."
      verb="Lift"
      lines={() => [`windlass queues control ${quoted(queue)} --lift`, curl("POST", path)]}
      act={async () => {
        await send("POST", path);
        reload();
        tell(`${queue} is not held`);
      }}
    />
  );
}

/** Lifts the hold of a key, and lets a halted one go on. */
export function resumeKey({ queue, reload }: Of, key: string, halted: boolean) {
  const path = `/v1/queues/${part(queue)}/keys/${part(key)}/resume`;
  const says = halted
    ? "Its next job starts although the one before it has failed. That one stays as it is."
    : "Its jobs start again as its limits allow.";
  dialog.value = (
    <ActDialog
      title={`Resume the key ${key}`}
      says={says}
      verb="Resume"
      lines={() => [`windlass queues key ${quoted(queue)} ${quoted(key)} --resume`, curl("POST", path)]}
      act={async () => {
        await send("POST", path);
        reload();
        tell(`The key ${key} goes on`);
      }}
    />
  );
}

function KeyLimitDialog({ queue, reload, of }: Of & { of: Schemas["FlowKey"] }) {
  const own = of.own_limit ? of.limit : {};
  const [running, setRunning] = useState(own.running ? String(own.running) : "");
  const [rate, setRate] = useState(rateText(own.rate));
  const [weight, setWeight] = useState(own.weight ? String(own.weight) : "");
  const read = { running: readCount(running), rate: readRate(rate), weight: readCount(weight) };
  const bad = Object.values(read).includes(null as never);
  const limit = Object.fromEntries(Object.entries(read).filter(([, value]) => value)) as Limit;
  const none = Object.keys(limit).length === 0;
  const path = `/v1/queues/${part(queue)}/keys/${part(of.key)}`;
  const given = [
    limit.running ? ` --running ${limit.running}` : "",
    limit.rate ? ` --rate ${rateText(limit.rate)}` : "",
    limit.weight ? ` --weight ${limit.weight}` : "",
  ].join("");
  const command = `windlass queues key ${quoted(queue)} ${quoted(of.key)}${none ? " --clear" : given}`;
  return (
    <ActDialog
      title={`Limits of the key ${of.key}`}
      says="In place of those that every key of the queue has. All empty takes its own away."
      verb={none ? "Take its own away" : "Set"}
      blocked={bad || (none && !of.own_limit)}
      lines={() => [command, none ? curl("DELETE", path) : curl("PUT", path, limit)]}
      act={async () => {
        await (none ? send("DELETE", path) : send("PUT", path, limit));
        reload();
        tell(none ? `The key ${of.key} has the limits of every key` : `The key ${of.key} has limits of its own`);
      }}
    >
      <div class="grid-2">
        <Field name="Run at once" value={running} set={setRunning} bad={read.running === null} />
        <Field name="Start" hint="10/s" value={rate} set={setRate} bad={read.rate === null} />
        <Field name="Share beside others, 1 to 1000" value={weight} set={setWeight} bad={read.weight === null} />
      </div>
    </ActDialog>
  );
}

export function limitKey(of: Of, key: Schemas["FlowKey"]) {
  dialog.value = <KeyLimitDialog {...of} of={key} />;
}
