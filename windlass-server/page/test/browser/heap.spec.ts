// A tab that is left open: its heap stays small and does not grow, no task of it is long, and its charts are redrawn seldom.
//
// WINDLASS_HEAP_MINUTES says for how long: half a one for every change, 60 before a release (scripts/release-check).

import { expect, type Started, start, test } from "./server.ts";

const MINUTES = Number(process.env.WINDLASS_HEAP_MINUTES ?? 0.5);
const MIB = 1 << 20;
/** From so many minutes on, growth can be told from noise. */
const GROWTH_FROM = 5;

let server: Started;

test.beforeAll(async () => {
  server = await start({ demo: true });
});

test.afterAll(async () => server.stop());

test(`the overview of the demonstration, open for ${MINUTES} min`, async ({ page }) => {
  test.setTimeout((MINUTES + 3) * 60_000);
  await page.addInitScript(() => {
    const all = window as unknown as { long: number[]; drawn: number };
    all.long = [];
    all.drawn = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) all.long.push(Math.round(entry.duration));
    }).observe({ type: "longtask" });
    // Charts are drawn by their paths.
    document.addEventListener("DOMContentLoaded", () => {
      new MutationObserver(() => {
        all.drawn += 1;
      }).observe(document, { subtree: true, attributeFilter: ["d", "points"] });
    });
  });
  await page.goto(`${server.url}/`);
  await expect(page.locator(".figures .value").first()).toHaveText(/\d/);
  const debug = await page.context().newCDPSession(page);
  const heap = async () => {
    // What nobody holds any more must not count; twice, because the first frees what the second finds.
    await debug.send("HeapProfiler.collectGarbage");
    await debug.send("HeapProfiler.collectGarbage");
    return (await debug.send("Runtime.getHeapUsage")).usedSize;
  };
  await page.waitForTimeout(15_000);
  await page.evaluate(() => {
    (window as unknown as { long: number[] }).long = [];
  });
  const charts = await page.getByRole("figure").count();
  const seen = [await heap()];
  const begun = Date.now();
  while (Date.now() - begun < MINUTES * 60_000) {
    await page.waitForTimeout(Math.min(30_000, MINUTES * 20_000));
    seen.push(await heap());
  }
  const { long, drawn } = await page.evaluate(() => {
    const { long, drawn } = window as unknown as { long: number[]; drawn: number };
    return { long, drawn };
  });
  const shown = seen.map((bytes) => (bytes / MIB).toFixed(1)).join(" ");
  const seconds = (Date.now() - begun + 15_000) / 1000;
  console.log(`heap in MiB over ${MINUTES} min: ${shown}`);
  console.log(
    `tasks over 50 ms: ${long.length ? long.join(" ") : "none"}; ${drawn} drawings of ${charts} charts in ${seconds.toFixed(0)} s`,
  );
  expect(Math.max(...seen)).toBeLessThan(40 * MIB);
  expect(drawn / Math.max(1, charts) / seconds).toBeLessThanOrEqual(1.1);
  if (MINUTES >= GROWTH_FROM) {
    const third = Math.floor(seen.length / 3);
    const mean = (part: number[]) => part.reduce((sum, one) => sum + one, 0) / part.length;
    expect(mean(seen.slice(-third)), shown).toBeLessThan(mean(seen.slice(third, 2 * third)) * 1.1);
  }
  if (process.env.WINDLASS_QUIET) expect(long).toEqual([]);
});
