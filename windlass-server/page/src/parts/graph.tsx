// A workflow drawn: layers from left to right, each step a link with its state, zoomed by buttons and keys as by wheel.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Schemas, State } from "../api/client.ts";
import { href } from "../router.ts";
import { number, STATES, stateWord } from "../words.ts";
import { critical } from "./critical.ts";
import { type Box, type Drawn, draw } from "./layout.ts";
import { pieces } from "./text.tsx";

const [WIDTH, HEIGHT, ACROSS, DOWN, MARGIN] = [168, 44, 56, 14, 12];
const ZOOMS = [0.5, 0.6, 0.7, 0.85, 1, 1.25, 1.6];
/** The places of the plain size among them, and of the smallest that is chosen unasked. */
const [PLAIN, READABLE] = [4, 1];

function plain(text: string): string {
  return pieces(text)
    .map((piece) => piece.plain ?? piece.strange)
    .join("");
}

function short(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** The state that a step is drawn in: the one that most wants to be seen. */
const LOUDEST: State[] = [
  "dead_letter",
  "failed",
  "running",
  "retrying",
  "scheduled",
  "delayed",
  "pending",
  "cancelled",
  "completed",
];

function loudest(box: Box): State {
  return LOUDEST.find((state) => box.states[state]) ?? "pending";
}

function wording(box: Box): string {
  return STATES.filter((state) => box.states[state])
    .map((state) =>
      box.jobs.length === 1 ? stateWord[state] : `${number(box.states[state]!)} ${stateWord[state].toLowerCase()}`,
    )
    .join(", ");
}

interface StepProps {
  box: Box;
  x: number;
  y: number;
  workflow: string;
  onPath: boolean;
}

function Step({ box, x, y, workflow, onPath }: StepProps) {
  const state = loudest(box);
  const one = box.jobs.length === 1;
  const type = plain(box.type);
  const to = one ? `/jobs/${box.jobs[0]}` : `/jobs?${new URLSearchParams({ workflow, type: box.type })}`;
  return (
    <a href={href(to)} class={onPath ? "on-path" : ""}>
      <title>{`${type}: ${wording(box)}${onPath ? "; on the critical path" : ""}`}</title>
      {one ? null : <rect class="step" x={x + 4} y={y - 4} width={WIDTH} height={HEIGHT} rx="7" />}
      <rect class="step" x={x} y={y} width={WIDTH} height={HEIGHT} rx="7" />
      <rect class={`fill ${state}`} x={x} y={y} width="5" height={HEIGHT} rx="2.5" />
      <text class="type" x={x + 14} y={y + 18}>
        {short(one ? type : `${number(box.jobs.length)} × ${type}`, 21)}
      </text>
      <text class={`state ${state}`} x={x + 14} y={y + 35}>
        {short(wording(box), 24)}
      </text>
    </a>
  );
}

/** The places of the boxes, and the size of the whole. */
function places(drawn: Drawn) {
  const inLayer = new Map<number, number>();
  for (const box of drawn.boxes) inLayer.set(box.layer, (inLayer.get(box.layer) ?? 0) + 1);
  const at = new Map(
    drawn.boxes.map((box) => {
      const free = (drawn.tallest - inLayer.get(box.layer)!) * (HEIGHT + DOWN);
      return [box.id, { x: MARGIN + box.layer * (WIDTH + ACROSS), y: MARGIN + free / 2 + box.place * (HEIGHT + DOWN) }];
    }),
  );
  return {
    at,
    high: drawn.tallest * (HEIGHT + DOWN) - DOWN + 2 * MARGIN,
    wide: drawn.layers * (WIDTH + ACROSS) - ACROSS + 2 * MARGIN,
  };
}

/** The largest size at which a drawing fits, of those that can still be read; the plain one where it fits anyway. */
export function fitting(wide: number, high: number, room: { wide: number; high: number }): number {
  const fits = ZOOMS.findLastIndex((scale) => scale <= 1 && wide * scale <= room.wide && high * scale <= room.high);
  return Math.max(READABLE, fits);
}

export function WorkflowGraph({ graph, workflow }: { graph: Schemas["Graph"]; workflow: string }) {
  const [zoom, setZoom] = useState(PLAIN);
  const frame = useRef<HTMLElement>(null);
  const [path, setPath] = useState(false);
  const drawn = useMemo(() => draw(graph), [graph]);
  const way = useMemo(() => critical(graph), [graph]);
  const { at, high, wide } = useMemo(() => places(drawn), [drawn]);
  useLayoutEffect(() => {
    const room = frame.current;
    if (room) setZoom(fitting(wide, high, { wide: room.clientWidth, high: room.clientHeight }));
  }, [workflow]);
  const isOn = (box: Box | undefined) => path && (box?.jobs.some((id) => way.has(id)) ?? false);
  const boxOf = new Map(drawn.boxes.map((box) => [box.id, box]));
  const scale = ZOOMS[zoom]!;
  const turn = (by: number) => setZoom(Math.min(ZOOMS.length - 1, Math.max(0, zoom + by)));
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "+" || event.key === "=") turn(1);
    else if (event.key === "-") turn(-1);
    else if (event.key === "0") setZoom(PLAIN);
    else return;
    event.preventDefault();
  };
  return (
    <div class="stack close">
      <div class="row">
        <button type="button" class="button tiny" onClick={() => turn(-1)} disabled={zoom === 0} aria-label="Smaller">
          −
        </button>
        <button
          type="button"
          class="button tiny"
          onClick={() => turn(1)}
          disabled={zoom === ZOOMS.length - 1}
          aria-label="Larger"
        >
          +
        </button>
        <span class="small muted number-3">{Math.round(scale * 100)} %</span>
        <button type="button" class="button tiny" aria-pressed={path} onClick={() => setPath(!path)}>
          Critical path
        </button>
        <span class="small muted push wide">
          {drawn.folded ? "Like steps are drawn as one. " : ""}Arrow keys move it, + and − size it; the table says the
          same.
        </span>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys */}
      <section class="graph" ref={frame} tabIndex={0} aria-label="Graph of the workflow" onKeyDown={onKey}>
        <svg width={wide * scale} height={high * scale} viewBox={`0 0 ${wide} ${high}`} role="group" aria-label="Steps">
          {drawn.lines.map(({ from, to }) => {
            const [one, other] = [at.get(from)!, at.get(to)!];
            const [x1, y1, x2, y2] = [one.x + WIDTH, one.y + HEIGHT / 2, other.x, other.y + HEIGHT / 2];
            const bend = Math.max(20, (x2 - x1) / 2);
            const on = isOn(boxOf.get(from)) && isOn(boxOf.get(to));
            return (
              <path
                key={`${from} ${to}`}
                class={`edge ${on ? "on-path" : ""}`}
                d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`}
              />
            );
          })}
          {drawn.boxes.map((box) => (
            <Step key={box.id} box={box} workflow={workflow} onPath={isOn(box)} {...at.get(box.id)!} />
          ))}
        </svg>
      </section>
    </div>
  );
}
