// Times: relative ones that go on by themselves, with the exact one on hover, on focus and for copying.

import { signal } from "@preact/signals";
import { second } from "../api/live.ts";
import { about } from "../words.ts";

/** Whether times are shown in UTC and not in the zone of this browser. */
export const inUtc = signal(localStorage.getItem("windlass.utc") === "yes");

export function setUtc(utc: boolean) {
  inUtc.value = utc;
  localStorage.setItem("windlass.utc", utc ? "yes" : "no");
}

/** A time in full, with its zone. */
export function exact(at: number): string {
  return new Intl.DateTimeFormat("en-GB", {
    dateStyle: "medium",
    timeStyle: "long",
    ...(inUtc.value ? { timeZone: "UTC" } : {}),
  }).format(at);
}

/** The time of day, with thousandths, for lists of moments close together. */
export function clock(at: number): string {
  return new Intl.DateTimeFormat("en-GB", {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    ...(inUtc.value ? { timeZone: "UTC" } : {}),
  }).format(at);
}

const DAY_MS = 86_400_000;

/** A moment at the end of an axis: with its day where the axis is longer than one. */
export function axisTime(at: number, length: number): string {
  const zone = inUtc.value ? { timeZone: "UTC" } : {};
  const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", ...zone }).format(at);
  if (length < 10 * 60_000) return clock(at).slice(0, 8);
  if (length < DAY_MS) return time;
  return `${new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", ...zone }).format(at)} ${time}`;
}

export function relative(at: number): string {
  const away = at - second.value;
  if (Math.abs(away) < 1000) return "now";
  return away > 0 ? `in ${about(away)}` : `${about(away)} ago`;
}

/** `3 min ago`, `in 20 s`. */
export function When({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="muted">–</span>;
  const time = Date.parse(at);
  return (
    <time class="nowrap" dateTime={at} title={exact(time)}>
      {relative(time)}
    </time>
  );
}

/** The exact time, with the relative one beside it. */
export function Moment({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="muted">–</span>;
  const time = Date.parse(at);
  const near = Math.abs(time - second.value) < DAY_MS / 2;
  return (
    <time dateTime={at} title={`${exact(time)} · ${at}`}>
      {near ? exact(time).replace(/^.*, /, "") : exact(time)} <span class="muted">({relative(time)})</span>
    </time>
  );
}
