// What a chart shows, as a table: newest first.

import type { Look } from "./chart.tsx";
import { Text } from "./text.tsx";
import { exact } from "./time.tsx";

interface ChartTableProps {
  title: string;
  times: number[];
  lines: { look: Look; values: (number | null)[] }[];
  shown: (value: number | null | undefined) => string;
}

export function ChartTable({ title, times, lines, shown }: ChartTableProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys
    <section class="chart-table" tabIndex={0} aria-label={`${title}, as a table`}>
      <table>
        <caption>{title}</caption>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {lines.map(({ look }) => (
              <th key={look.name} scope="col" class="number">
                <Text>{look.word}</Text>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times.map((_, back) => {
            const at = times.length - 1 - back;
            return (
              <tr key={times[at]}>
                <td>{exact(times[at]!)}</td>
                {lines.map(({ look, values }) => (
                  <td key={look.name} class="number">
                    {shown(values[at])}
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
