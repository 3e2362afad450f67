// The charts of a queue, a type or the whole store: how much goes through, how long jobs wait and run, what stands where;
// over a range that is in the address, for all of it or split by queue or type.

import { useMemo } from "preact/hooks";
import type { Schemas } from "../api/client.ts";
import { type Resource, useResource } from "../api/live.ts";
import { go, href, query, withQuery } from "../router.ts";
import { number, span } from "../words.ts";
import { Chart, type Data, type Look } from "./chart.tsx";
import { Menu } from "./menu.tsx";
import { Loaded } from "./notice.tsx";
import { RangeForm } from "./range.tsx";
import { exact } from "./time.tsx";

type Series = Schemas["Series"];
type Of = "rate" | "wait" | "run" | "depth";

const RATES: Look[] = [
  { name: "in", word: "in", ink: "scheduled" },
  { name: "completed", word: "completed", ink: "completed", dash: "5 3" },
  { name: "failed", word: "failed", ink: "failed", dash: "2 3" },
  { name: "dead_letter", word: "dead-letter", ink: "dead_letter", dash: "8 3 2 3" },
  { name: "cancelled", word: "cancelled", ink: "cancelled", dash: "1 4" },
];

const DEPTHS: Look[] = [
  { name: "scheduled", word: "ready", ink: "scheduled" },
  { name: "later", word: "later", ink: "delayed", dash: "2 3" },
  { name: "running", word: "running", ink: "running", dash: "7 3" },
  { name: "dead", word: "dead", ink: "failed", dash: "5 3" },
];

const PARTS: Look[] = [
  { name: "p50", word: "p50", ink: "scheduled" },
  { name: "p95", word: "p95", ink: "running", dash: "5 3" },
  { name: "p99", word: "p99", ink: "delayed", dash: "2 3" },
];

/** Inks and dashes of lines by queue or type, so that neighbours differ in both. */
const INKS = ["scheduled", "completed", "retrying", "delayed", "failed", "running", "dead_letter", "pending"];
const DASHES = [undefined, "6 3", "2 3", "9 3 2 3"];

const ALL: [of: Of, title: string, unit: string, looks: Look[]][] = [
  ["rate", "Throughput", "jobs a second", RATES],
  ["depth", "Backlog", "jobs", DEPTHS],
  ["wait", "Waited", "from ready to begun", PARTS],
  ["run", "Ran", "a run", PARTS],
];

export const SPANS: [span: string, word: string][] = [
  ["5m", "5 min"],
  ["1h", "1 h"],
  ["1d", "24 h"],
  ["14d", "14 d"],
];

/** A line's own name where lines are split: the queue or type, with what is drawn of it. */
function split(data: Series): { data: Data; looks: Look[] } {
  const names = data.series.map((line) => `${line.queue ?? line.type ?? ""} ${line.name}`.trim());
  return {
    data: { at: data.at, series: data.series.map((line, at) => ({ name: names[at]!, values: line.values })) },
    looks: names.map((name, at) => {
      const dash = DASHES[Math.floor(at / INKS.length + at) % DASHES.length];
      return { name, word: name, ink: INKS[at % INKS.length]!, ...(dash ? { dash } : {}) };
    }),
  };
}

function seconds(value: number): string {
  return span(value * 1000);
}

/** What the address says about the range. */
export function rangeOf(asked: URLSearchParams): URLSearchParams {
  const sent = new URLSearchParams();
  const [from, to] = [asked.get("from"), asked.get("to")];
  if (from) {
    sent.set("from", from);
    if (to) sent.set("to", to);
  } else sent.set("last", asked.get("last") ?? "5m");
  return sent;
}

export interface Lines {
  rate: Resource<Series>;
  depth: Resource<Series>;
  wait: Resource<Series>;
  run: Resource<Series>;
}

/** The four sets of lines, asked for again as often as there is something new to draw. */
export function useLines(fixed: Record<string, string> = {}): Lines {
  const asked = query.value;
  const by = asked.get("by");
  const path = (of: Of) => {
    const sent = rangeOf(asked);
    sent.set("of", of);
    if (by) sent.set("by", by);
    for (const [name, value] of Object.entries(fixed)) sent.set(name, value);
    return `/v1/series?${sent}`;
  };
  const every = asked.get("from") ? 0 : 10_000;
  return {
    rate: useResource<Series>(path("rate"), every),
    depth: useResource<Series>(path("depth"), every),
    wait: useResource<Series>(path("wait"), every),
    run: useResource<Series>(path("run"), every),
  };
}

function Bar({ splits }: { splits: [name: string, word: string][] }) {
  const asked = query.value;
  const [from, to] = [asked.get("from"), asked.get("to")];
  const last = from ? "" : (asked.get("last") ?? "5m");
  const choose = (span: string) => withQuery({ last: span === "5m" ? null : span, from: null, to: null });
  return (
    <div class="row">
      <div class="row" role="group" aria-label="Range">
        {SPANS.map(([span, word]) => (
          <a
            key={span}
            class={`button tiny ${last === span ? "primary" : ""}`}
            href={href(choose(span))}
            aria-current={last === span ? "true" : undefined}
          >
            {word}
          </a>
        ))}
        <Menu word="Range" tiny>
          <RangeForm />
        </Menu>
      </div>
      {from ? (
        <span class="small muted">
          {exact(Date.parse(from))} to {to ? exact(Date.parse(to)) : "now"}
        </span>
      ) : null}
      <label class="row small push">
        <span class="muted">Split by</span>
        <select
          class="tiny"
          value={asked.get("by") ?? ""}
          onChange={(event) => go(withQuery({ by: event.currentTarget.value || null }))}
        >
          <option value="">nothing</option>
          {splits.map(([name, word]) => (
            <option key={name} value={name}>
              {word}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

function choose(from: number, to: number) {
  go(withQuery({ from: new Date(from).toISOString(), to: new Date(to).toISOString(), last: null }));
}

interface ChartsProps {
  lines: Lines;
  splits?: [name: string, word: string][];
}

const SPLITS: [string, string][] = [
  ["queue", "queue"],
  ["type", "type"],
];

type Shape = (typeof ALL)[number];

/** One of them; drawn again only for other lines, however often its screen is. */
function One({ shape, line, by }: { shape: Shape; line: Resource<Series>; by: string | null }) {
  const [of, title, unit, looks] = shape;
  return useMemo(
    () => (
      <Loaded of={line}>
        {(data) => {
          const shown = by ? split(data) : { data, looks };
          const timed = of === "wait" || of === "run";
          const sampled = data.sampled;
          return (
            <Chart
              title={title}
              unit={by && timed ? `${unit}, p95` : unit}
              choose={choose}
              {...shown}
              {...(timed ? { tell: seconds } : {})}
              {...(sampled && sampled.of > sampled.taken
                ? { note: `of ${number(sampled.taken)} of ${number(sampled.of)} that ended` }
                : {})}
            />
          );
        }}
      </Loaded>
    ),
    [of, title, unit, looks, line.data, line.problem, by],
  );
}

export function Charts({ lines, splits = SPLITS }: ChartsProps) {
  const by = query.value.get("by");
  return (
    <section class="stack close" aria-label="Over time">
      <Bar splits={splits} />
      <div class="grid-2 even">
        {ALL.map((shape) => (
          <One key={shape[0]} shape={shape} line={lines[shape[0]]} by={by} />
        ))}
      </div>
    </section>
  );
}
