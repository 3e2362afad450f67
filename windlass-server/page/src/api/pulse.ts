// The pulse: one stream for all that a tab looks at. It says that something has changed; what it is now is then asked for.
//
// While the stream runs, nobody asks by the clock. A hidden or paused tab has no stream. Where the server has none to give,
// the page goes back to asking now and then.

import { effect, signal } from "@preact/signals";
import { base, signedOut } from "./client.ts";

/** Whether the stream runs. */
export const beating = signal(false);
/** The build of the server, as the stream tells it; another than the first means that this page is old. */
export const build = signal("");
export const outdated = signal(false);

type Listener = () => void;

const listeners = new Map<string, Set<Listener>>();
const topics = signal<string[]>([]);
const TOPICS_MAX = 64;
/** Topics come and go together when a screen changes; the stream is opened once for all of them. */
const SETTLE_MS = 100;
const AGAIN_MS = 5000;

function tellTopics() {
  const now = [...listeners.keys()].sort().slice(0, TOPICS_MAX);
  if (now.join() !== topics.value.join()) topics.value = now;
}

/** Calls back whenever a topic has changed, until the returned function is called. */
export function onBeat(topic: string, listener: Listener): () => void {
  const own = listeners.get(topic) ?? new Set();
  own.add(listener);
  listeners.set(topic, own);
  tellTopics();
  return () => {
    own.delete(listener);
    if (own.size === 0 && listeners.get(topic) === own) listeners.delete(topic);
    tellTopics();
  };
}

function heard(event: MessageEvent<string>) {
  const { topic, build: told } = JSON.parse(event.data) as { topic?: string; build?: string };
  if (told) {
    if (build.value !== "" && build.value !== told) outdated.value = true;
    build.value = told;
  }
  for (const listener of listeners.get(topic ?? "") ?? []) listener();
}

/** Keeps the stream open while somebody sees the page. */
export function keepBeating(awake: () => boolean) {
  effect(() => {
    const wanted = topics.value;
    if (!awake() || wanted.length === 0 || signedOut.value) return;
    let stream: EventSource | undefined;
    let timer = setTimeout(open, SETTLE_MS);
    function open() {
      stream = new EventSource(`${base}/v1/pulse?topics=${encodeURIComponent(wanted.join(","))}`);
      stream.addEventListener("open", () => {
        beating.value = true;
      });
      stream.addEventListener("changed", heard);
      stream.addEventListener("overview", heard);
      stream.addEventListener("error", () => {
        beating.value = false;
        stream?.close();
        timer = setTimeout(open, AGAIN_MS);
      });
    }
    return () => {
      clearTimeout(timer);
      stream?.close();
      beating.value = false;
    };
  });
}
