// The palette (Ctrl+K): goes to any screen, queue, type, schedule or worker by a few of its letters, to a job by its id,
// and does what concerns the page as a whole.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Schemas } from "../api/client.ts";
import { isId } from "../api/filter.ts";
import { paused, useResource } from "../api/live.ts";
import { go } from "../router.ts";
import { Dialog } from "./dialog.tsx";
import { PLACES, paletteOpen } from "./keys.ts";
import { Text } from "./text.tsx";
import { nextTheme } from "./theme.ts";
import { inUtc, setUtc } from "./time.tsx";

export function closePalette() {
  paletteOpen.value = false;
}

export interface Entry {
  kind: string;
  word: string;
  act: () => void;
}

const SHOWN_MAX = 12;

/** How well letters fit a word: lower is better, -1 is not at all. All letters must come, in their order. */
export function fit(letters: string, word: string): number {
  const [wanted, text] = [letters.toLowerCase(), word.toLowerCase()];
  const whole = text.indexOf(wanted);
  if (whole >= 0) return whole === 0 ? 0 : 1 + whole / 1000;
  let at = -1;
  let holes = 0;
  for (const letter of wanted) {
    const next = text.indexOf(letter, at + 1);
    if (next < 0) return -1;
    if (at >= 0 && next > at + 1) holes += 1;
    at = next;
  }
  return 2 + holes;
}

/** The entries that fit, best first; those that fit alike stay in their order. */
export function choose(entries: Entry[], letters: string): Entry[] {
  const wanted = letters.trim();
  if (wanted === "") return entries.slice(0, SHOWN_MAX);
  return entries
    .map((entry) => ({ entry, how: fit(wanted, entry.word) }))
    .filter(({ how }) => how >= 0)
    .sort((one, other) => one.how - other.how)
    .slice(0, SHOWN_MAX)
    .map(({ entry }) => entry);
}

function typed(text: string): Entry[] {
  const wanted = text.trim();
  if (wanted === "") return [];
  if (isId(wanted))
    return [
      { kind: "Job", word: wanted, act: () => go(`/jobs/${wanted}`) },
      { kind: "Workflow", word: wanted, act: () => go(`/workflows/${wanted}`) },
    ];
  return [{ kind: "Find jobs", word: wanted, act: () => go(`/jobs?find=${encodeURIComponent(wanted)}`) }];
}

function useEntries(): Entry[] {
  const queues = useResource<Schemas["QueuePage"]>("/v1/queues");
  const schedules = useResource<Schemas["SchedulePage"]>("/v1/schedules?limit=200");
  const workers = useResource<Schemas["Workers"]>("/v1/workers");
  return useMemo(() => {
    const served = workers.data?.items ?? [];
    const types = [...new Set(served.flatMap((worker) => worker.types ?? []))].sort();
    const to = (kind: string, word: string, path: string): Entry => ({ kind, word, act: () => go(path) });
    return [
      ...PLACES.map(([, path, word]) => to("Screen", word, path)),
      to("Screen", "Enqueue", "/enqueue"),
      to("Screen", "Server", "/server"),
      to("Screen", "New schedule", "/schedules/~new"),
      to("Screen", "Operations", "/acts?tab=operations"),
      to("Jobs", "Dead jobs", "/jobs?state=failed,dead_letter"),
      to("Jobs", "Webhook deliveries", "/jobs?queue=windlass.webhooks"),
      { kind: "Page", word: "Change the theme", act: nextTheme },
      { kind: "Page", word: inUtc.value ? "Times in local zone" : "Times in UTC", act: () => setUtc(!inUtc.value) },
      {
        kind: "Page",
        word: paused.value ? "Go on by itself" : "Pause all motion",
        act: () => {
          paused.value = !paused.value;
        },
      },
      ...(queues.data?.items ?? []).map(({ name }) => to("Queue", name, `/queues/${encodeURIComponent(name)}`)),
      ...types.map((type) => to("Type", type, `/jobs?type=${encodeURIComponent(type)}`)),
      ...(schedules.data?.items ?? []).map(({ schedule: { name } }) =>
        to("Schedule", name ?? "", `/schedules/${encodeURIComponent(name ?? "")}`),
      ),
      ...served.map(({ id }) => to("Worker", id, "/workers")),
    ];
  }, [queues.data, schedules.data, workers.data]);
}

export function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const entries = useEntries();
  const fitting = (letters: string) => [...choose(entries, letters), ...typed(letters)];
  const found = fitting(text);
  const place = Math.min(at, found.length - 1);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [place, text]);
  const take = (entry: Entry | undefined) => {
    if (!entry) return;
    closePalette();
    entry.act();
  };
  const onKey = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by !== undefined) setAt((place + by + found.length) % found.length);
    else if (event.key === "Enter") {
      // Enter may come before what was typed is drawn; what is in the field counts.
      const now = (event.currentTarget as HTMLInputElement).value;
      take(now === text ? found[place] : fitting(now)[0]);
    } else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to" onClose={closePalette}>
      <input
        type="text"
        role="combobox"
        aria-label="Screen, queue, type, schedule, worker, or a job's id"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={found.length > 0 ? `palette-${place}` : undefined}
        aria-autocomplete="list"
        placeholder="Screen, queue, type, schedule, worker, or a job's id"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKey}
      />
      <div id="palette" class="palette" role="listbox" aria-label="What fits" ref={list}>
        {found.map((entry, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field above has the focus and the keys
          <div
            key={`${entry.kind} ${entry.word}`}
            id={`palette-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === place}
            onClick={() => take(entry)}
          >
            <span class="small muted">{entry.kind}</span>
            <span class="clip">
              <Text>{entry.word}</Text>
            </span>
          </div>
        ))}
      </div>
    </Dialog>
  );
}
