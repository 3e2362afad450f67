// Lines over time, drawn as SVG: colours come from the style sheet, so both themes are right without drawing again.
// Arrow keys walk over the points, Shift and arrow keys or a drag choose a range, and the same is there as table and CSV.

import { useEffect, useRef, useState } from "preact/hooks";
import { number } from "../words.ts";
import { csv, ground, type Line, path, short, ticks } from "./chart-scale.ts";
import { ChartTable } from "./chart-table.tsx";
import { CopyButton } from "./copy.tsx";
import { Text } from "./text.tsx";
import { axisTime, clock } from "./time.tsx";

export interface Look {
  /** The line's name in the answer. */
  name: string;
  /** What people call it. */
  word: string;
  /** The class that gives its colour. */
  ink: string;
  dash?: string;
}

export interface Data {
  at: string[];
  series: Line[];
}

interface ChartProps {
  title: string;
  unit: string;
  data: Data;
  looks: Look[];
  /** How a value is told; a plain number unless said. */
  tell?: (value: number) => string;
  /** What is to be known about the numbers, such as that they are of a sample. */
  note?: string;
  /** Shows only what is between two moments. */
  choose?: (from: number, to: number) => void;
}

const [HIGH, RIGHT, BOTTOM, TOP] = [168, 8, 20, 10];
/** Room for the numbers of the scale; spans of time have units. */
const [LEFT_PLAIN, LEFT_TOLD] = [44, 62];

function plain(value: number): string {
  return value >= 100 || Number.isInteger(value) ? number(Math.round(value)) : value.toFixed(1);
}

function useWidth() {
  const element = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(560);
  useEffect(() => {
    if (!element.current) return;
    const watch = new ResizeObserver(
      ([entry]) => entry && setWidth(Math.max(240, Math.floor(entry.contentRect.width))),
    );
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return { element, width };
}

interface Drawn {
  times: number[];
  lines: { look: Look; values: (number | null)[] }[];
}

interface PlotProps extends Drawn {
  width: number;
  place: number;
  chosen: boolean;
  /** The other end of a range under choice. */
  anchor: number | null;
  tell: (value: number) => string;
}

/** The picture itself; what it shows is told in words beside it. */
function Plot({ times, lines, width, place, chosen, anchor, tell }: PlotProps) {
  const [first, last] = [times[0] ?? 0, times.at(-1) ?? 1];
  const most = Math.max(0, ...lines.flatMap((line) => line.values.map((value) => value ?? 0)));
  const left = tell === plain ? LEFT_PLAIN : LEFT_TOLD;
  const marks = ticks(most, tell === plain ? 1 : 0.003);
  const top = marks.at(-1)!;
  const x = (at: number) => left + ((times[at]! - first) / Math.max(1, last - first)) * (width - left - RIGHT);
  const y = (value: number) => TOP + (1 - value / top) * (HIGH - TOP - BOTTOM);
  const mark = (value: number) => (tell === plain ? short(value) : value === 0 ? "0" : tell(value));
  return (
    <svg width={width} height={HIGH} viewBox={`0 0 ${width} ${HIGH}`} aria-hidden="true">
      {marks.map((at) => (
        <g key={at}>
          <line class="rule" x1={left} x2={width - RIGHT} y1={y(at)} y2={y(at)} />
          <text x={left - 8} y={y(at) + 4} text-anchor="end">
            {mark(at)}
          </text>
        </g>
      ))}
      {times.length > 1 ? (
        <>
          <text x={left} y={HIGH - 4}>
            {axisTime(first, last - first)}
          </text>
          {width >= 420 ? (
            <text x={(left + width - RIGHT) / 2} y={HIGH - 4} text-anchor="middle">
              {axisTime((first + last) / 2, last - first)}
            </text>
          ) : null}
          <text x={width - RIGHT} y={HIGH - 4} text-anchor="end">
            {axisTime(last, last - first)}
          </text>
        </>
      ) : null}
      {anchor !== null && times.length > 0 ? (
        <rect
          class="range"
          x={Math.min(x(anchor), x(place))}
          width={Math.abs(x(anchor) - x(place))}
          y={TOP}
          height={HIGH - TOP - BOTTOM}
        />
      ) : null}
      {lines[0] && !lines[0].look.dash ? (
        <path class={`ground ${lines[0].look.ink}`} d={ground(lines[0].values, x, y)} />
      ) : null}
      {lines.map(({ look, values }) => (
        <path key={look.name} class={`line ${look.ink}`} stroke-dasharray={look.dash} d={path(values, x, y)} />
      ))}
      {chosen && times.length > 0 ? (
        <line class="chosen" x1={x(place)} x2={x(place)} y1={TOP} y2={HIGH - BOTTOM} />
      ) : null}
      {lines.map(({ look, values }) => {
        const value = values[place];
        return value === null || value === undefined ? null : (
          <circle key={look.name} class={`dot ${look.ink}`} cx={x(place)} cy={y(value)} r="3.2" />
        );
      })}
    </svg>
  );
}

/** The last moment at which some line has a value. */
function lastKnown({ times, lines }: Drawn): number {
  for (let at = times.length - 1; at >= 0; at -= 1) if (lines.some((line) => line.values[at] != null)) return at;
  return times.length - 1;
}

export function Chart({ title, unit, data, looks, tell = plain, note, choose }: ChartProps) {
  const { element, width } = useWidth();
  const [chosen, setChosen] = useState<number | null>(null);
  const [anchor, setAnchor] = useState<number | null>(null);
  const [table, setTable] = useState(false);
  const times = data.at.map((at) => Date.parse(at));
  const lines = looks.map((look) => ({
    look,
    values: data.series.find((line) => line.name === look.name)?.values ?? [],
  }));
  const drawn = { times, lines };
  const end = times.length - 1;
  const place = Math.max(0, chosen === null ? lastKnown(drawn) : Math.min(chosen, end));
  const shown = (value: number | null | undefined) => (value == null ? "–" : tell(value));
  const finish = (other: number | null) => {
    setAnchor(null);
    if (other === null || other === place || !choose) return;
    choose(times[Math.min(other, place)]!, times[Math.max(other, place)]!);
  };
  const walk = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -end, End: end }[event.key];
    if (by !== undefined) {
      if (!event.shiftKey) setAnchor(null);
      else if (anchor === null && choose) setAnchor(place);
      setChosen(Math.min(end, Math.max(0, place + by)));
    } else if (event.key === "Enter") finish(anchor);
    else if (event.key === "Escape") setAnchor(null);
    else return;
    event.preventDefault();
  };
  const pointed = (event: PointerEvent): number => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const left = tell === plain ? LEFT_PLAIN : LEFT_TOLD;
    const part = (event.clientX - box.left - left) / (width - left - RIGHT);
    const wanted = (times[0] ?? 0) + part * ((times[end] ?? 0) - (times[0] ?? 0));
    return times.reduce((best, time, at) => (Math.abs(time - wanted) < Math.abs(times[best]! - wanted) ? at : best), 0);
  };
  const values = lines.map(({ look, values }) => `${look.word} ${shown(values[place])}`).join(", ");
  const known = lines.some(({ values }) => values.some((value) => value != null));
  const sentence = known ? `${clock(times[place]!).slice(0, 8)}: ${values} ${unit}` : "no readings yet";
  const text = () =>
    csv(
      times,
      lines.map(({ look, values }) => ({ name: look.word, values })),
    );
  return (
    <figure class="card chart" aria-label={title}>
      <header>
        <h2>{title}</h2>
        <span class="small muted">{unit}</span>
        <span class="row push">
          {table ? <CopyButton text={text()} what="CSV" word="CSV" /> : null}
          <button type="button" class="button quiet tiny" aria-pressed={table} onClick={() => setTable(!table)}>
            {table ? "As a chart" : "As a table"}
          </button>
        </span>
      </header>
      {table ? (
        <ChartTable title={title} times={times} lines={lines} shown={shown} />
      ) : (
        <div
          ref={element}
          class="plot"
          role="slider"
          tabIndex={0}
          aria-label={`${title}, point by point`}
          aria-valuemin={0}
          aria-valuemax={Math.max(0, end)}
          aria-valuenow={place}
          aria-valuetext={anchor === null ? sentence : `${sentence}; range from ${clock(times[anchor]!).slice(0, 8)}`}
          onKeyDown={walk}
          onPointerDown={(event) => choose && event.button === 0 && setAnchor(pointed(event))}
          onPointerMove={(event) => setChosen(pointed(event))}
          onPointerUp={() => finish(anchor)}
          onPointerLeave={() => {
            setChosen(null);
            setAnchor(null);
          }}
        >
          <Plot {...drawn} width={width} place={place} chosen={chosen !== null} anchor={anchor} tell={tell} />
          {known ? null : <p class="small muted plot-empty">No readings yet</p>}
        </div>
      )}
      <figcaption class="row small">
        {lines.map(({ look, values }) => (
          <span key={look.name} class={`badge ${look.ink}`}>
            <svg class="key" viewBox="0 0 22 8" aria-hidden="true">
              <path class="line" d="M1 4h20" stroke-dasharray={look.dash} />
            </svg>
            <span class="clip one">
              <Text>{look.word}</Text>
            </span>{" "}
            {shown(values[place])}
          </span>
        ))}
        {note ? <span class="muted">{note}</span> : null}
        <span class="muted push">{chosen !== null && known ? clock(times[place]!).slice(0, 8) : ""}</span>
      </figcaption>
    </figure>
  );
}
