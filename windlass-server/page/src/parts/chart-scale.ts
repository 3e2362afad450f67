// The arithmetic of charts: round scales, paths with gaps, what a range holds, and the same as lines of CSV.

import { number } from "../words.ts";

/** Round numbers from 0 to one not below the largest value; whole ones unless fractions mean something. */
export function ticks(most: number, least = 1): number[] {
  const goal = Math.max(most, least) / 3;
  const power = 10 ** Math.floor(Math.log10(goal));
  const round = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= goal)!;
  const step = least >= 1 ? Math.max(1, round) : round;
  const marks = Math.max(1, Math.ceil(most / step - 1e-9));
  return Array.from({ length: marks + 1 }, (_, at) => Number((at * step).toPrecision(6)));
}

/** The path of one line; it is interrupted where nothing is known. */
export function path(values: (number | null)[], x: (at: number) => number, y: (value: number) => number): string {
  let pen = false;
  let text = "";
  values.forEach((value, at) => {
    if (value === null || value === undefined) pen = false;
    else {
      text += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
    }
  });
  return text;
}

/** The ground between one line and zero, in as many pieces as the line has. */
export function ground(values: (number | null)[], x: (at: number) => number, y: (value: number) => number): string {
  let text = "";
  values.forEach((value, at) => {
    if (value === null || value === undefined) return;
    const [before, after] = [values[at - 1] ?? null, values[at + 1] ?? null];
    if (before === null && after === null) return;
    if (before === null) text += `M${x(at).toFixed(1)} ${y(0).toFixed(1)}`;
    text += `L${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (after === null) text += `L${x(at).toFixed(1)} ${y(0).toFixed(1)}Z`;
  });
  return text;
}

export interface Line {
  name: string;
  values: (number | null)[];
}

/** The points between two moments, both included; all of them where a range holds fewer than two. */
export function within(times: number[], from: number, to: number): [first: number, last: number] {
  const first = times.findIndex((time) => time >= from);
  const last = times.findLastIndex((time) => time <= to);
  return first >= 0 && last > first ? [first, last] : [0, times.length - 1];
}

function cell(text: string): string {
  // A spreadsheet would take a name that begins so for a formula.
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Lines over time as CSV: a column for each, empty where nothing is known. */
export function csv(times: number[], lines: Line[]): string {
  const head = ["time", ...lines.map((line) => cell(line.name))].join(",");
  const rows = times.map((time, at) =>
    [new Date(time).toISOString(), ...lines.map((line) => line.values[at] ?? "")].join(","),
  );
  return `${[head, ...rows].join("\n")}\n`;
}

/** A number as an axis holds it: `1.2k`, `30k`, `1M`. */
export function short(value: number): string {
  if (value >= 1_000_000) return `${+(value / 1_000_000).toFixed(1)}M`;
  if (value >= 10_000) return `${+(value / 1000).toFixed(1)}k`;
  return Number.isInteger(value) ? number(value) : String(+value.toFixed(2));
}
