// Times: relative ones that go on by themselves, with the exact one on hover, on focus and for copying.

import { computed, signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { second } from "../api/live.ts";
import { about } from "../words.ts";

/** Whether times are shown in UTC and not in the zone of this browser. */
export const inUtc = signal(localStorage.getItem("windlass.utc") === "yes");

export function setUtc(utc: boolean) {
  inUtc.value = utc;
  localStorage.setItem("windlass.utc", utc ? "yes" : "no");
}

const kept = new Map<string, Intl.DateTimeFormat>();

/** A formatter for these options, in the zone that is shown. Making one takes longer than writing hundreds of times with it. */
function written(as: string, options: Intl.DateTimeFormatOptions, at: number): string {
  const name = inUtc.value ? `${as} UTC` : as;
  let format = kept.get(name);
  if (!format) {
    format = new Intl.DateTimeFormat("en-GB", { ...options, ...(inUtc.value ? { timeZone: "UTC" } : {}) });
    kept.set(name, format);
  }
  return format.format(at);
}

/** A time in full, with its zone. */
export function exact(at: number): string {
  return written("exact", { dateStyle: "medium", timeStyle: "long" }, at);
}

const TIME: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit" };

/** The time of day, with thousandths, for lists of moments close together. */
export function clock(at: number): string {
  return written("clock", { ...TIME, second: "2-digit", fractionalSecondDigits: 3 }, at);
}

const DAY_MS = 86_400_000;

/** A moment at the end of an axis: with its day where the axis is longer than one. */
export function axisTime(at: number, length: number): string {
  if (length < 10 * 60_000) return clock(at).slice(0, 8);
  const time = written("time", TIME, at);
  if (length < DAY_MS) return time;
  return `${written("day", { day: "numeric", month: "short" }, at)} ${time}`;
}

export function relative(at: number): string {
  const away = at - second.value;
  if (Math.abs(away) < 1000) return "now";
  return away > 0 ? `in ${about(away)}` : `${about(away)} ago`;
}

/** The relative time as text that changes by itself: what stands around it is not drawn again every second. */
function useRelative(time: number) {
  return useMemo(() => computed(() => relative(time)), [time]);
}

/** `3 min ago`, `in 20 s`. */
export function When({ at }: { at: string | null | undefined }) {
  const time = at ? Date.parse(at) : 0;
  const text = useRelative(time);
  if (!at) return <span class="muted">–</span>;
  return (
    <time class="nowrap" dateTime={at} title={exact(time)}>
      {text}
    </time>
  );
}

/** The exact time, with the relative one beside it. */
export function Moment({ at }: { at: string | null | undefined }) {
  const time = at ? Date.parse(at) : 0;
  const text = useRelative(time);
  if (!at) return <span class="muted">–</span>;
  const near = Math.abs(time - second.peek()) < DAY_MS / 2;
  return (
    <time dateTime={at} title={`${exact(time)} · ${at}`}>
      {near ? exact(time).replace(/^.*, /, "") : exact(time)} <span class="muted">({text})</span>
    </time>
  );
}
