// What a screen looks at, and how it stays fresh: asked again when the pulse says that it has changed, and where it has no
// topic, after a while.
//
// A hidden tab asks nothing. When the server is away, the last answer stays, marked as old, and the page tries again
// ever less often. Answers are kept for a while, so that Back shows at once what was there.

import { effect, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, Refused, signedOut } from "./client.ts";
import { beating, keepBeating, onBeat } from "./pulse.ts";

/** Whether somebody has stopped the page's motion. */
export const paused = signal(false);
/** Whether the tab can be seen. */
export const visible = signal(!document.hidden);
/** Since when the server has not answered, by this browser's clock; 0 while it does. */
export const awaySince = signal(0);
/** The store's time, moved on once a second while somebody sees the page: relative times hang on it, all on one. */
export const second = signal(Date.now());
/** Asks everything again when it changes. */
export const nudge = signal(0);

const KEPT_MAX = 60;
const RETRY_MAX_MS = 30_000;
const kept = new Map<string, { data: unknown; at: number }>();

/** By how much the store's clock is ahead of this browser's, in milliseconds. */
let ahead = 0;

/** The store's time, which decides everything. */
export function now(): number {
  return Date.now() + ahead;
}

export async function setClock(): Promise<void> {
  const begun = Date.now();
  const { now: theirs } = await ask<{ now: string }>("/v1/time");
  ahead = Date.parse(theirs) - (begun + Date.now()) / 2;
  second.value = now();
}

document.addEventListener("visibilitychange", () => {
  visible.value = !document.hidden;
});

effect(() => {
  if (!visible.value || paused.value) return;
  const ticking = setInterval(() => {
    second.value = now();
  }, 1000);
  return () => clearInterval(ticking);
});

keepBeating(() => visible.value && !paused.value);

/** With a pulse, even what has a topic is asked for now and then, in case a beat was missed. */
const SELDOM_MS = 15_000;
/** Beats come up to twice a second; what is shown need not. */
const BEAT_MIN_MS = 900;

/** What all tabs look at again and again, and share: the server reads it once for those that come within a second. */
const SHARED = /^\/v1\/(lanes|attention|queues(\/[^/?]+)?)(\?|$)/;

/** The path with which something is asked for that may be a moment old; what somebody has just changed is asked for as it is. */
function shared(path: string): string {
  return SHARED.test(path) ? `${path}${path.includes("?") ? "&" : "?"}max_age=1s` : path;
}

export interface Resource<T> {
  data: T | undefined;
  problem: Refused | undefined;
  /** When `data` was answered, by this browser's clock. */
  at: number;
  /** Whether `data` is older than it should be, because the server does not answer. */
  stale: boolean;
  reload: () => void;
}

function keep(path: string, data: unknown) {
  // While nothing ticks, what is new must not seem to come from the future.
  if (now() - second.value > 1100) second.value = now();
  kept.delete(path);
  kept.set(path, { data, at: Date.now() });
  const oldest = kept.keys().next().value;
  if (kept.size > KEPT_MAX && oldest !== undefined) kept.delete(oldest);
}

/** Forgets all answers, such as those for somebody who has signed out. */
export function forget() {
  kept.clear();
}

/** What `path` answers, asked again at each beat of its topic, or every so many milliseconds; 0 for once. */
export function useResource<T>(path: string | null, every = 0, topic = ""): Resource<T> {
  const [, redraw] = useState(0);
  const problem = useRef<Refused | undefined>(undefined);
  const shown = useRef<string | null>(path);
  const again = useRef<() => void>(() => {});
  if (shown.current !== path) {
    shown.current = path;
    problem.current = undefined;
  }

  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let beat: ReturnType<typeof setTimeout> | undefined;
    let failures = 0;
    let asking = false;
    let missed = false;
    // The first answer is as the store is: nothing would say that an older one has changed since.
    let anew = true;
    const look = async () => {
      clearTimeout(timer);
      if (asking) missed = true;
      if (asking || stop.signal.aborted) return;
      asking = true;
      const asked = anew ? path : shared(path);
      anew = false;
      try {
        keep(path, await ask<T>(asked, { signal: stop.signal }));
        problem.current = undefined;
        failures = 0;
        awaySince.value = 0;
      } catch (error) {
        if (stop.signal.aborted) return;
        problem.current = error instanceof Refused ? error : new Refused(0, { detail: String(error) });
        failures += 1;
        if (problem.current.status === 0 && awaySince.value === 0) awaySince.value = Date.now();
      }
      asking = false;
      redraw((count) => count + 1);
      plan();
      // What changed while the answer was under way may not be in it.
      if (missed && failures === 0 && visible.value && !paused.value) beat = setTimeout(look, BEAT_MIN_MS);
      missed = false;
    };
    const plan = () => {
      clearTimeout(timer);
      if (stop.signal.aborted || signedOut.value || !visible.value || (paused.value && failures === 0)) return;
      const passing = problem.current?.status === 0 || (problem.current?.status ?? 0) >= 429;
      if (failures > 0 && passing) timer = setTimeout(look, Math.min(RETRY_MAX_MS, 500 * 2 ** Math.min(failures, 8)));
      else if (failures === 0 && every > 0) timer = setTimeout(look, pace());
    };
    const pace = () => (topic !== "" && beating.value ? Math.max(every, SELDOM_MS) : every);
    const unlisten = topic
      ? onBeat(topic, () => {
          clearTimeout(beat);
          const age = Date.now() - (kept.get(path)?.at ?? 0);
          beat = setTimeout(look, Math.max(0, BEAT_MIN_MS - age));
        })
      : () => {};
    again.current = () => {
      anew = true;
      void look();
    };
    void look();
    let nudges = nudge.peek();
    const unwatch = effect(() => {
      const awake = visible.value && !paused.value;
      const nudged = nudge.value !== nudges;
      nudges = nudge.value;
      if (topic) beating.value;
      if (!visible.value || (paused.value && failures === 0)) clearTimeout(timer);
      // A beat that came just before must not ask after all.
      if (!awake) clearTimeout(beat);
      if (!awake || asking || !kept.has(path)) return;
      const age = Date.now() - (kept.get(path)?.at ?? 0);
      clearTimeout(timer);
      anew ||= nudged;
      timer = setTimeout(look, nudged ? 0 : Math.max(0, pace() - age));
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
      clearTimeout(beat);
      unlisten();
      unwatch();
    };
  }, [path, every, topic]);

  const found = path === null ? undefined : kept.get(path);
  return {
    data: found?.data as T | undefined,
    problem: problem.current,
    at: found?.at ?? 0,
    stale: problem.current !== undefined && found !== undefined,
    reload: () => again.current(),
  };
}
