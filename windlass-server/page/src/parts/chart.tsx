// Lines over time, drawn as SVG: colours come from the style sheet, so both themes are right without drawing again.
// Arrow keys walk over the points, and the same is there as a table.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Schemas } from "../api/client.ts";
import { number } from "../words.ts";
import { clock } from "./time.tsx";

type Data = Schemas["Series"];

export interface Look {
  /** The line's name in the answer. */
  name: string;
  /** What people call it. */
  word: string;
  /** The class that gives its colour. */
  ink: string;
  dash?: string;
}

const [HIGH, LEFT, BOTTOM, TOP] = [168, 44, 20, 10];

/** A round number not below the largest value, and its parts. */
export function ticks(most: number): number[] {
  const goal = Math.max(most, 1) / 3;
  const power = 10 ** Math.floor(Math.log10(goal));
  const step = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= goal)!;
  const whole = Math.max(1, step);
  const found: number[] = [];
  for (let at = 0; at < most + whole; at += whole) found.push(at);
  return found.length > 1 ? found : [0, whole];
}

/** The path of one line; it is interrupted where nothing is known. */
export function path(values: (number | null)[], x: (at: number) => number, y: (value: number) => number): string {
  let pen = false;
  let text = "";
  values.forEach((value, at) => {
    if (value === null || value === undefined) pen = false;
    else {
      text += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
    }
  });
  return text;
}

function shown(value: number | null | undefined): string {
  if (value === null || value === undefined) return "not known";
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

function AsTable({ title, data, looks }: { title: string; data: Data; looks: Look[] }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys
    <section class="chart-table" tabIndex={0} aria-label={`${title}, as a table`}>
      <table>
        <caption>{title}</caption>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {looks.map((look) => (
              <th key={look.name} scope="col" class="number">
                {look.word}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {data.at.map((_, back) => {
            const at = data.at.length - 1 - back;
            return (
              <tr key={data.at[at]}>
                <td>{clock(Date.parse(data.at[at]!)).slice(0, 8)}</td>
                {looks.map((look) => (
                  <td key={look.name} class="number">
                    {shown(data.series.find((line) => line.name === look.name)?.values[at])}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

export function Chart({ title, unit, data, looks }: { title: string; unit: string; data: Data; looks: Look[] }) {
  const { element, width } = useWidth();
  const [chosen, setChosen] = useState<number | null>(null);
  const [table, setTable] = useState(false);
  const times = data.at.map((at) => Date.parse(at));
  const [first, last] = [times[0] ?? 0, times.at(-1) ?? 1];
  const lines = looks.map((look) => ({
    look,
    values: data.series.find((line) => line.name === look.name)?.values ?? [],
  }));
  const most = Math.max(1, ...lines.flatMap((line) => line.values.map((value) => value ?? 0)));
  const marks = ticks(most);
  const top = marks.at(-1)!;
  const x = (at: number) => LEFT + ((times[at]! - first) / Math.max(1, last - first)) * (width - LEFT - 8);
  const y = (value: number) => TOP + (1 - value / top) * (HIGH - TOP - BOTTOM);
  const place = chosen === null ? times.length - 1 : Math.min(chosen, times.length - 1);
  const walk = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -times.length, End: times.length }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    setChosen(Math.min(times.length - 1, Math.max(0, place + by)));
  };
  const point = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const part = (event.clientX - box.left - LEFT) / (width - LEFT - 8);
    const wanted = first + part * (last - first);
    setChosen(
      times.reduce((best, time, at) => (Math.abs(time - wanted) < Math.abs(times[best]! - wanted) ? at : best), 0),
    );
  };
  const values = lines.map(({ look, values }) => `${look.word} ${shown(values[place])}`).join(", ");
  const sentence = times.length > 0 ? `${clock(times[place]!).slice(0, 8)}: ${values} ${unit}` : "no readings yet";
  return (
    <figure class="card chart" aria-label={title}>
      <header>
        <h2>{title}</h2>
        <span class="small muted">{unit}</span>
        <button type="button" class="button quiet tiny push" aria-pressed={table} onClick={() => setTable(!table)}>
          {table ? "As a chart" : "As a table"}
        </button>
      </header>
      {table ? (
        <AsTable title={title} data={data} looks={looks} />
      ) : (
        <div
          ref={element}
          role="slider"
          tabIndex={0}
          aria-label={`${title}, point by point`}
          aria-valuemin={0}
          aria-valuemax={Math.max(0, times.length - 1)}
          aria-valuenow={Math.max(0, place)}
          aria-valuetext={sentence}
          onKeyDown={walk}
          onPointerMove={point}
          onPointerLeave={() => setChosen(null)}
        >
          <svg width={width} height={HIGH} viewBox={`0 0 ${width} ${HIGH}`} aria-hidden="true">
            {marks.map((mark) => (
              <g key={mark}>
                <line class="rule" x1={LEFT} x2={width - 8} y1={y(mark)} y2={y(mark)} />
                <text x={LEFT - 8} y={y(mark) + 4} text-anchor="end">
                  {number(mark)}
                </text>
              </g>
            ))}
            {times.length > 1 ? (
              <>
                <text x={LEFT} y={HIGH - 4}>
                  {clock(first).slice(0, 8)}
                </text>
                <text x={width - 8} y={HIGH - 4} text-anchor="end">
                  {clock(last).slice(0, 8)}
                </text>
              </>
            ) : null}
            {lines.map(({ look, values }) => (
              <path key={look.name} class={`line ${look.ink}`} stroke-dasharray={look.dash} d={path(values, x, y)} />
            ))}
            {chosen !== null && times.length > 0 ? (
              <line class="chosen" x1={x(place)} x2={x(place)} y1={TOP} y2={HIGH - BOTTOM} />
            ) : null}
            {lines.map(({ look, values }) => {
              const value = values[place];
              return value === null || value === undefined ? null : (
                <circle key={look.name} class={`dot ${look.ink}`} cx={x(place)} cy={y(value)} r="3.2" />
              );
            })}
          </svg>
        </div>
      )}
      <figcaption class="row small">
        {lines.map(({ look, values }) => (
          <span key={look.name} class={`badge ${look.ink}`}>
            <svg class="key" viewBox="0 0 22 8" aria-hidden="true">
              <path class="line" d="M1 4h20" stroke-dasharray={look.dash} />
            </svg>
            {look.word} {shown(values[place])}
          </span>
        ))}
        {chosen !== null && times.length > 0 ? (
          <span class="muted push">{clock(times[place]!).slice(0, 8)}</span>
        ) : null}
      </figcaption>
    </figure>
  );
}
