// The words for what the API names: one for each, as in the glossary of the documents.

import type { State } from "./api/client.ts";

export const STATES: State[] = [
  "pending",
  "delayed",
  "scheduled",
  "running",
  "retrying",
  "completed",
  "failed",
  "dead_letter",
  "cancelled",
];

/** States that a job does not leave by itself. */
export const ENDED: State[] = ["completed", "failed", "dead_letter", "cancelled"];
export const WAITING: State[] = ["pending", "delayed", "scheduled", "retrying"];
export const DEAD: State[] = ["failed", "dead_letter"];

export const stateWord: Record<State, string> = {
  pending: "Pending",
  delayed: "Delayed",
  scheduled: "Scheduled",
  running: "Running",
  retrying: "Retrying",
  completed: "Completed",
  failed: "Failed",
  dead_letter: "Dead-letter",
  cancelled: "Cancelled",
};

export const stateMeaning: Record<State, string> = {
  pending: "waits for other jobs to end",
  delayed: "waits for its moment",
  scheduled: "ready: the next free worker takes it",
  running: "a worker holds it",
  retrying: "failed, and waits to be tried again",
  completed: "done",
  failed: "ended by a failure that is not tried again",
  dead_letter: "all tries are used up, or somebody set it aside",
  cancelled: "ended because somebody or something it needed asked for it",
};

export const outcomeWord: Record<string, string> = {
  completed: "completed",
  failed: "failed",
  dead_lettered: "dead-lettered",
  snoozed: "put off by its handler",
  cancelled: "cancelled",
  released: "given back",
  interrupted: "interrupted",
  lost: "lost: the worker did not come back",
  revoked: "taken away",
};

const count = new Intl.NumberFormat("en");

/** A count as people read it. */
export function number(value: number): string {
  return count.format(value);
}

/** `1 job`, `2 jobs`. */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** A rate a second, with as many digits as it bears. */
export function rate(value: number): string {
  if (value === 0) return "0";
  if (value < 0.1) return "<0.1";
  return value < 10 ? value.toFixed(1) : number(Math.round(value));
}

const UNITS: [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

/** A span of time in its one or two largest units: `3 d 4 h`, `12.4 s`, `85 ms`. */
export function span(milliseconds: number): string {
  const value = Math.max(0, milliseconds);
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${value < 10_000 ? (value / 1000).toFixed(1) : Math.round(value / 1000)} s`;
  const at = UNITS.findIndex(([, size]) => value >= size);
  const [unit, size] = UNITS[at]!;
  const whole = Math.floor(value / size);
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((value - whole * size) / next[1]) : 0;
  return next && rest > 0 ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
}

/** A span of time in its largest unit, for places where it changes every second. */
export function about(milliseconds: number): string {
  const value = Math.abs(milliseconds);
  const [unit, size] = UNITS.find(([, size]) => value >= size) ?? ["s", 1000];
  return `${Math.floor(value / size)} ${unit}`;
}

/** A length of time of the API (`1h 30m`, `500ms`) as everything else here is written: `1 h 30 min`, `500 ms`. */
export function spaced(duration: string | null | undefined): string {
  const unit = (_: string, digit: string, name: string) => `${digit} ${name === "m" ? "min" : name} `;
  return duration?.replace(/(\d)\s*(ms|us|ns|[dhms])(?![a-z])\s*/g, unit).trimEnd() ?? "–";
}

const BYTES = ["bytes", "KiB", "MiB", "GiB"];

export function bytes(value: number): string {
  let [size, at] = [value, 0];
  while (size >= 1024 && at < BYTES.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${at === 0 ? size : size.toFixed(1)} ${BYTES[at]}`;
}

/** A word as a shell takes it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
