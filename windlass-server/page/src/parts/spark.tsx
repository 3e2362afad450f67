// How often something happened over the last day: a small picture beside a name, and a larger one that can be read.

import { number, rate } from "../words.ts";

/** Each part of a trend is two hours long. */
const PART_H = 2;

function words(values: number[]): string {
  const most = Math.max(...values);
  return `${number(values.reduce((sum, value) => sum + value, 0))} in the last day, at most ${number(most)} in two hours`;
}

export function Spark({ values }: { values: number[] }) {
  const most = Math.max(1, ...values);
  return (
    <svg class="spark" viewBox={`0 0 ${values.length * 6} 20`} role="img" aria-label={words(values)}>
      <title>{words(values)}</title>
      {values.map((value, at) => {
        const high = value === 0 ? 1 : Math.max(2, (value / most) * 20);
        return (
          <rect key={at} class={value === 0 ? "none" : ""} x={at * 6} y={20 - high} width="5" height={high} rx="1" />
        );
      })}
    </svg>
  );
}

const [LINES_WIDE, LINES_HIGH] = [84, 20];

interface LinesProps {
  first: (number | null)[];
  second: (number | null)[];
  words: [string, string];
}

/** Two rates over time, each as a line on the same scale; interrupted where nothing is known. */
export function Lines({ first, second, words }: LinesProps) {
  const known = [...first, ...second].filter((value) => value !== null);
  if (known.length === 0) return <span class="muted">–</span>;
  const most = Math.max(0.001, ...known);
  const path = (values: (number | null)[]) => {
    let pen = "M";
    return values
      .map((value, at) => {
        if (value === null) {
          pen = "M";
          return "";
        }
        const x = ((at + 0.5) / values.length) * LINES_WIDE;
        const y = LINES_HIGH - 1 - (value / most) * (LINES_HIGH - 3);
        const point = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
        pen = "L";
        return point;
      })
      .join("");
  };
  const last = (values: (number | null)[]) => rate(values.findLast((value) => value !== null) ?? 0);
  const says = `${words[0]} ${last(first)} a second, ${words[1]} ${last(second)} a second`;
  return (
    <svg class="spark lines" viewBox={`0 0 ${LINES_WIDE} ${LINES_HIGH}`} role="img" aria-label={says}>
      <title>{says}</title>
      <path class="first" d={path(first)} />
      <path class="second" d={path(second)} />
    </svg>
  );
}

export function Trend({ values }: { values: number[] }) {
  const most = Math.max(1, ...values);
  return (
    <figure class="card" aria-label="The last day">
      <header>
        <h2>The last day</h2>
        <span class="small muted">deaths in each two hours</span>
      </header>
      <ol class="trend">
        {values.map((value, at) => {
          const back = (values.length - 1 - at) * PART_H;
          return (
            <li key={at}>
              <span class="small">{value > 0 ? number(value) : ""}</span>
              <svg viewBox="0 0 10 100" preserveAspectRatio="none" aria-hidden="true">
                <rect x="0" width="10" y={100 - (value / most) * 100} height={(value / most) * 100} />
              </svg>
              <span class="small muted">
                <span class="hidden-text">{number(value)}, </span>
                {back === 0 ? "now" : `−${back} h`}
              </span>
            </li>
          );
        })}
      </ol>
    </figure>
  );
}
