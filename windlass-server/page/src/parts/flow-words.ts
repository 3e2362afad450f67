// The flow control of a queue in words, as fields of a form, and as a line for a terminal.

import type { Schemas } from "../api/client.ts";
import { counted, number, quoted } from "../words.ts";

export type Control = Schemas["Control"];
export type Limit = Schemas["FlowLimit"];
export type Rate = Schemas["Rate"];

const PER: Record<string, string> = { "1s": "a second", "1m": "a minute", "1h": "an hour", "1d": "a day" };
const UNIT: Record<string, string> = { s: "1s", m: "1m", min: "1m", h: "1h", d: "1d" };

/** `100 a second`, `10 in 5m`. */
export function rateWords(rate: Rate): string {
  return `${number(rate.count)} ${PER[rate.per] ?? `in ${rate.per}`}`;
}

/** A rate as it is typed and as the command line takes it: `100/s`, `10/min`, `3/5m`. */
export function rateText(rate: Rate | null | undefined): string {
  if (!rate) return "";
  const unit = { "1s": "s", "1m": "min", "1h": "h", "1d": "d" }[rate.per] ?? rate.per;
  return `${rate.count}/${unit}`;
}

/** What was typed as a rate; `undefined` for nothing, `null` for what is none. */
export function readRate(text: string): Rate | undefined | null {
  if (text.trim() === "") return undefined;
  const [, count, unit] = /^\s*([1-9]\d*)\s*\/\s*([\da-z]+)\s*$/.exec(text) ?? [];
  if (!count || !unit) return null;
  const per = UNIT[unit] ?? (/^(\d+(d|h|m|s|ms))+$/.test(unit) ? unit : undefined);
  return per ? { count: Number(count), per } : null;
}

/** A number that was typed; `undefined` for nothing, `null` for what is none. */
export function readCount(text: string): number | undefined | null {
  if (text.trim() === "") return undefined;
  return /^[1-9]\d{0,6}$/.test(text.trim()) ? Number(text) : null;
}

/** `5 at once, 10 a second`. */
export function limitWords(limit: Limit): string {
  const words = [
    limit.running ? `${number(limit.running)} at once` : "",
    limit.rate ? rateWords(limit.rate) : "",
    limit.weight && limit.weight !== 1 ? `share ${limit.weight}` : "",
  ];
  return words.filter(Boolean).join(", ") || "no limit";
}

/** What a control says, a sentence for each part. */
export function controlWords(control: Control): [string, string][] {
  const all: [string, string][] = [];
  if (control.running) all.push(["At once", counted(control.running, "job")]);
  if (control.rate) {
    const burst = control.rate.burst ? `, up to ${number(control.rate.burst)} at one moment` : "";
    all.push(["Starts", rateWords(control.rate) + burst]);
  }
  for (const [type, limit] of Object.entries(control.types ?? {})) all.push([type, limitWords(limit)]);
  if (control.each_key) all.push(["Each key", limitWords(control.each_key)]);
  if (control.fair) all.push(["Keys", "share by what runs, then by turn"]);
  if (control.ageing) all.push(["Ageing", `the next priority counts as ${control.ageing} older`]);
  if (control.ordered)
    all.push([
      "Order",
      control.ordered === "halt"
        ? "one job of a key at a time; a failed one halts its key"
        : "one job of a key at a time; a failed one is passed over",
    ]);
  return all;
}

/** The form of a control: what is typed. */
export interface Fields {
  running: string;
  rate: string;
  burst: string;
  types: string;
  keyRunning: string;
  keyRate: string;
  fair: boolean;
  ageing: string;
  ordered: "" | "halt" | "go_on";
}

const text = (value: number | null | undefined) => (value ? String(value) : "");

export function fieldsOf(control: Control | undefined): Fields {
  const types = Object.entries(control?.types ?? {}).map(([name, limit]) => `${name}=${text(limit.running)}`);
  return {
    running: text(control?.running),
    rate: rateText(control?.rate),
    burst: text(control?.rate?.burst),
    types: types.join(" "),
    keyRunning: text(control?.each_key?.running),
    keyRate: rateText(control?.each_key?.rate),
    fair: control?.fair ?? false,
    ageing: control?.ageing ?? "",
    ordered: control?.ordered ?? "",
  };
}

function readTypes(text: string, before: Control | undefined): Record<string, Limit> | null {
  const types: Record<string, Limit> = {};
  for (const word of text.split(/[\s,]+/).filter(Boolean)) {
    const at = word.lastIndexOf("=");
    const running = readCount(word.slice(at + 1));
    if (at < 1 || running === null) return null;
    // What the form does not show of a type stays as it was.
    const { running: _, ...kept } = before?.types?.[word.slice(0, at)] ?? {};
    types[word.slice(0, at)] = running === undefined ? kept : { ...kept, running };
  }
  return types;
}

/** The control that a form says; `null` while a field of it cannot be read. */
export function controlOf(fields: Fields, before?: Control): Control | null {
  const [running, keyRunning, burst] = [fields.running, fields.keyRunning, fields.burst].map(readCount);
  const [rate, keyRate] = [fields.rate, fields.keyRate].map(readRate);
  const types = readTypes(fields.types, before);
  const ageing = fields.ageing.trim();
  const unread = [running, keyRunning, burst, rate, keyRate, types].includes(null as never);
  if (unread || !types || (ageing && !/^(\d+(d|h|m|s|ms))+$/.test(ageing)) || (burst && !rate)) return null;
  const control: Control = {};
  if (running) control.running = running;
  if (rate) control.rate = burst ? { ...rate, burst } : rate;
  if (Object.keys(types).length > 0) control.types = types;
  const { running: _r, rate: _t, ...rest } = before?.each_key ?? {};
  if (keyRunning || keyRate)
    control.each_key = {
      ...rest,
      ...(keyRunning ? { running: keyRunning } : {}),
      ...(keyRate ? { rate: keyRate } : {}),
    };
  if (fields.fair) control.fair = true;
  if (ageing) control.ageing = ageing;
  if (fields.ordered) control.ordered = fields.ordered;
  return control;
}

/** The same as a command. */
export function controlCommand(queue: string, control: Control): string {
  const given = [
    control.running ? `--running ${control.running}` : "",
    control.rate ? `--rate ${rateText(control.rate)}` : "",
    control.rate?.burst ? `--burst ${control.rate.burst}` : "",
    ...Object.entries(control.types ?? {}).map(([type, limit]) =>
      limit.running ? `--type-running ${quoted(`${type}=${limit.running}`)}` : "",
    ),
    control.each_key?.running ? `--each-key-running ${control.each_key.running}` : "",
    control.each_key?.rate ? `--each-key-rate ${rateText(control.each_key.rate)}` : "",
    control.fair ? "--fair" : "",
    control.ageing ? `--ageing ${control.ageing}` : "",
    control.ordered === "halt" ? "--ordered" : "",
    control.ordered === "go_on" ? "--ordered-go-on" : "",
  ];
  return ["windlass queues control", quoted(queue), ...given.filter(Boolean)].join(" ");
}

export const KEY_STATE: Record<Schemas["FlowKeyState"], string> = {
  open: "open",
  full: "full: as many run as may",
  rate: "its rate is used up",
  held: "held",
  ordered: "waits for its job before",
  halted: "halted by a failed job",
};
