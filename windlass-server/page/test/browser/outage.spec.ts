// A server that is killed and comes back: charts keep what was before, show the gap, and open tabs come back by themselves.

import { expect, type Started, start, test } from "./server.ts";

let server: Started;

test.beforeAll(async () => {
  server = await start({ demo: true });
});

test.afterAll(async () => server.stop());

interface Series {
  step: number;
  at: string[];
  series: { name: string; values: (number | null)[] }[];
}

const rates = async () => (await server.call("GET", "/v1/series?of=rate&last=1h")) as Series;
const known = ({ at, series }: Series, from: number, to: number) =>
  at.filter((time, place) => {
    const when = Date.parse(time);
    return when >= from && when <= to && series.some(({ values }) => typeof values[place] === "number");
  }).length;

test("charts show what was before a kill, and the gap", async ({ page, watched }) => {
  watched.expected.push(/ERR_CONNECTION|ERR_INCOMPLETE|failed:|Failed to load/);
  await page.goto(`${server.url}/`);
  await expect(page.locator(".figures .value").first()).toHaveText(/\d/);
  await expect.poll(async () => known(await rates(), 0, Date.now()), { timeout: 90_000 }).toBeGreaterThan(1);
  const killed = Date.now();
  server.kill();
  await expect(page.getByText(/away for/)).toBeVisible();
  // A silence of more than three samples is a gap.
  await page.waitForTimeout(45_000);
  const back = Date.now();
  await server.restart();
  await expect(page.getByRole("button", { name: "live" })).toBeVisible({ timeout: 60_000 });
  await expect
    .poll(async () => known(await rates(), back, Date.now() + 60_000), { timeout: 90_000 })
    .toBeGreaterThan(0);
  const { at, series } = await rates();
  const gap = at.findIndex((time, place) => place > 0 && Date.parse(time) - Date.parse(at[place - 1]!) > 30_000);
  expect(gap, JSON.stringify(at)).toBeGreaterThan(0);
  expect(Date.parse(at[gap - 1]!)).toBeLessThanOrEqual(killed + 1000);
  expect(series.map(({ values }) => values[gap])).toEqual(series.map(() => null));
  expect(known({ step: 10, at, series }, 0, killed)).toBeGreaterThan(0);
  // The chart itself breaks its line: it has fewer values than points.
  await page.getByRole("figure", { name: "Throughput" }).getByRole("button", { name: "As a table" }).click();
  await expect(page.getByRole("region", { name: "Throughput, as a table" })).toContainText("–");
});
