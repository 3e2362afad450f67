// How often something happened over the last day: a small picture beside a name, and a larger one that can be read.

import { number } from "../words.ts";

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
          const back = (values.length - at) * PART_H;
          return (
            <li key={at}>
              <span class="small">{value > 0 ? number(value) : ""}</span>
              <svg viewBox="0 0 10 100" preserveAspectRatio="none" aria-hidden="true">
                <rect x="0" width="10" y={100 - (value / most) * 100} height={(value / most) * 100} />
              </svg>
              <span class="small muted">
                <span class="hidden-text">{number(value)}, </span>−{back} h
              </span>
            </li>
          );
        })}
      </ol>
    </figure>
  );
}
