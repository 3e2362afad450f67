// Rates from counters: how much two readings differ, over the time between them.

import { useRef } from "preact/hooks";
import type { Sum } from "../api/lanes.ts";

interface Reading {
  at: number;
  sum: Sum;
}

export interface Rates {
  in: number;
  out: number;
  failing: number;
}

/** Readings that rates are taken over: enough to be calm, few enough to be present. */
const SPAN_MS = 5000;

/** How much comes in, goes out and fails a second; nothing before there are two readings. */
export function useRates(sum: Sum | undefined, at: number): Rates | undefined {
  const readings = useRef<Reading[]>([]);
  const last = readings.current.at(-1);
  if (sum && last?.at !== at) {
    readings.current = [...readings.current.filter((one) => at - one.at <= SPAN_MS), { at, sum }];
  }
  const [first, newest] = [readings.current[0], readings.current.at(-1)];
  if (!first || !newest || newest.at - first.at < 500) return undefined;
  const seconds = (newest.at - first.at) / 1000;
  const rate = (of: "accepted" | "ended" | "failing") => Math.max(0, newest.sum[of] - first.sum[of]) / seconds;
  return { in: rate("accepted"), out: rate("ended"), failing: rate("failing") };
}
