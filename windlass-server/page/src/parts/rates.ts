// Rates from counters: how much two readings differ, over the time between them.

import { useRef } from "preact/hooks";
import type { Schemas } from "../api/client.ts";

interface Reading {
  at: number;
  accepted: number;
  ended: number;
}

/** Readings that rates are taken over: enough to be calm, few enough to be present. */
const SPAN_MS = 5000;

function reading(totals: Schemas["Totals"], at: number): Reading {
  const { completed, failed, dead_letter, cancelled } = totals.states;
  return { at, accepted: totals.accepted, ended: completed + failed + dead_letter + cancelled + totals.pruned };
}

/** How much comes in and goes out a second; nothing before there are two readings. */
export function useRates(totals: Schemas["Totals"] | undefined, at: number): { in: number; out: number } | undefined {
  const readings = useRef<Reading[]>([]);
  const last = readings.current.at(-1);
  if (totals && last?.at !== at) {
    readings.current = [...readings.current.filter((one) => at - one.at <= SPAN_MS), reading(totals, at)];
  }
  const [first, newest] = [readings.current[0], readings.current.at(-1)];
  if (!first || !newest || newest.at - first.at < 500) return undefined;
  const seconds = (newest.at - first.at) / 1000;
  return {
    in: Math.max(0, newest.accepted - first.accepted) / seconds,
    // A requeued job leaves an ended state; the figure then shows nothing rather than less.
    out: Math.max(0, newest.ended - first.ended) / seconds,
  };
}
