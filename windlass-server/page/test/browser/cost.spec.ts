// What an open overview costs those who work: ten tabs, as one of them asks, beside a queue that is drained. And how soon it is there.
//
// With WINDLASS_QUIET=1 (scripts/release-check) draining may be slower by 2 % at most, and the times of a load are held to their budgets;
// else the run only shows that it works.

import { expect, type Started, start, test } from "./server.ts";

const QUIET = process.env.WINDLASS_QUIET !== undefined;
const [ROUNDS, ROUND_MS, TABS] = QUIET ? [12, 4000, 10] : [2, 1000, 10];

let server: Started;

test.beforeAll(async () => {
  server = await start();
});

test.afterAll(async () => server.stop());

interface Call {
  path: string;
  after: number;
}

/** Submits, claims and completes jobs for a time; gives how many a second. */
async function drain(milliseconds: number): Promise<number> {
  const jobs = Array.from({ length: 500 }, (_, number) => ({ type: "t", queue: "drained", payload: { number } }));
  const begun = performance.now();
  let done = 0;
  while (performance.now() - begun < milliseconds) {
    await server.call("POST", "/v1/jobs/batch", { jobs });
    const claim = { queues: ["drained"], max: 500, worker: "tests/1" };
    const claimed = (await server.call("POST", "/v1/claims", claim)) as {
      jobs: { id: string; lease: { token: string } }[];
    };
    const settlements = claimed.jobs.map(({ id, lease: { token } }) => ({ id, token, outcome: "completed" }));
    await server.call("POST", "/v1/leases/settle", { settlements });
    done += settlements.length;
  }
  return (done * 1000) / (performance.now() - begun);
}

/** Tabs that ask what the recorded one asked, each with a stream of its own; gives how to end them. */
function tabs(count: number, calls: Call[], length: number): () => void {
  const stop = new AbortController();
  const quietly = async (path: string) => {
    const response = await fetch(server.url + path, { signal: stop.signal });
    if (response.body) for await (const _ of response.body) if (stop.signal.aborted) return;
  };
  for (let tab = 0; tab < count; tab += 1) {
    quietly("/v1/pulse?topics=overview,lanes").catch(() => {});
    const again = () => {
      if (stop.signal.aborted) return;
      for (const { path, after } of calls) setTimeout(() => quietly(path).catch(() => {}), after);
      setTimeout(again, length);
    };
    setTimeout(again, (tab * length) / count);
  }
  return () => stop.abort();
}

test("ten open tabs hardly slow those who work", async ({ page }) => {
  test.setTimeout(ROUNDS * ROUND_MS * 3 + 120_000);
  await page.goto(`${server.url}/`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Overview");
  // What one tab asks while jobs flow.
  const [calls, begun, length]: [Call[], number, number] = [[], Date.now(), QUIET ? 10_000 : 2000];
  page.on("request", (request) => {
    const { pathname, search } = new URL(request.url());
    if (pathname.startsWith("/v1/") && pathname !== "/v1/pulse")
      calls.push({ path: pathname + search, after: Date.now() - begun });
  });
  await drain(length);
  await page.goto("about:blank");
  const asked = [...calls];
  expect(asked.length).toBeGreaterThan(0);
  const [alone, watched]: number[][] = [[], []];
  for (let round = 0; round < ROUNDS; round += 1) {
    const end = round % 2 === 1 ? tabs(TABS, asked, length) : () => {};
    (round % 2 === 1 ? watched : alone)!.push(await drain(ROUND_MS));
    end();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const median = (values: number[]) => [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)]!;
  const slower = 1 - median(watched!) / median(alone!);
  console.log(
    `one tab asks ${asked.length} times in ${length / 1000} s; ${median(alone!).toFixed(0)} jobs/s alone, ` +
      `${median(watched!).toFixed(0)} with ${TABS} tabs: ${(slower * 100).toFixed(1)} % slower`,
  );
  if (QUIET) expect(slower).toBeLessThanOrEqual(0.02);
});

test("the first figures stand at once, and nothing moves after them", async ({ browser }) => {
  const loads: { paint: number; figures: number; shift: number; bytes: number }[] = [];
  for (let round = 0; round < (QUIET ? 20 : 3); round += 1) {
    // Nothing is kept from load to load.
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    const page = await context.newPage();
    await page.addInitScript(() => {
      const seen = { shift: 0, figures: 0 };
      Object.assign(window, { seen });
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries() as unknown as { value: number; hadRecentInput: boolean }[])
          if (!entry.hadRecentInput) seen.shift += entry.value;
      }).observe({ type: "layout-shift", buffered: true });
      new MutationObserver(() => {
        const value = document.querySelector(".figures a:nth-child(4) .value");
        if (!seen.figures && value && /\d/.test(value.textContent ?? "")) seen.figures = performance.now();
      }).observe(document, { subtree: true, childList: true, characterData: true });
    });
    await page.goto(`${server.url}/`);
    const figures = () => page.evaluate(() => (window as unknown as { seen: { figures: number } }).seen.figures);
    await expect.poll(figures).toBeGreaterThan(0);
    await page.waitForTimeout(1500);
    loads.push(
      await page.evaluate(() => {
        const { seen } = window as unknown as { seen: { shift: number; figures: number } };
        const paint = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Number.NaN;
        const files = performance.getEntriesByType("resource") as PerformanceResourceTiming[];
        const bytes = files
          .filter((file) => file.name.includes("/page/"))
          .reduce((sum, file) => sum + file.encodedBodySize, 0);
        return { paint, figures: seen.figures, shift: seen.shift, bytes };
      }),
    );
    await context.close();
  }
  const at = (of: (load: (typeof loads)[number]) => number, part: number) => {
    const sorted = loads.map(of).sort((one, other) => one - other);
    return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))]!;
  };
  const [paint, figures, shift] = [
    at((load) => load.paint, 0.95),
    at((load) => load.figures, 0.95),
    at((load) => load.shift, 1),
  ];
  console.log(
    `${loads.length} loads: first paint ${at((load) => load.paint, 0.5).toFixed(0)} ms, p95 ${paint.toFixed(0)}; first figures ` +
      `${at((load) => load.figures, 0.5).toFixed(0)} ms, p95 ${figures.toFixed(0)}; layout shift at most ${shift.toFixed(4)}; ` +
      `${(loads[0]!.bytes / 1024).toFixed(1)} KiB of files`,
  );
  expect(shift).toBeLessThanOrEqual(0.02);
  if (QUIET) {
    expect(paint).toBeLessThanOrEqual(200);
    expect(figures).toBeLessThanOrEqual(400);
  }
});
