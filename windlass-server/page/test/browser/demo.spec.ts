// The demonstration, as newcomers see it: it moves, every screen has its content, and everybody can use it.

import { accessible, fits } from "./axe.ts";
import { expect, type Started, start, test } from "./server.ts";

let server: Started;

test.beforeAll(async () => {
  server = await start({ demo: true });
});

test.afterAll(async () => server.stop());

const SCREENS: [path: string, heading: string][] = [
  ["/", "Overview"],
  ["/jobs", "Jobs"],
  ["/jobs?state=failed,dead_letter", "Jobs"],
  ["/errors", "Errors"],
  ["/queues", "Queues"],
  ["/queues/mail", "mail"],
  ["/workflows", "Workflows"],
  ["/schedules", "Schedules"],
  ["/workers", "Workers"],
];

/** Screens that need no rows to be whole. */
const PLAIN: [path: string, heading: string][] = [
  ["/schedules/demo-digest", "demo-digest"],
  ["/schedules/~new", "New schedule"],
  ["/acts", "Acts"],
  ["/acts?tab=operations", "Acts"],
  ["/enqueue", "Enqueue"],
  ["/server", "Server"],
  ["/jobs/not-an-id/at-all", "There is nothing here"],
];

test("within a moment the first screen moves", async ({ page }) => {
  const begun = Date.now();
  await page.goto(`${server.url}/`);
  const figures = page.locator(".figures .value");
  await expect(figures.first()).toHaveText(/[1-9].*\/s/);
  expect(Date.now() - begun).toBeLessThan(10_000);
  const completed = page.locator('td[data-label="Completed"]');
  const first = await completed.allTextContents();
  await expect.poll(() => completed.allTextContents()).not.toEqual(first);
});

for (const [path, heading] of [...SCREENS, ...PLAIN]) {
  test(`${path} is for everybody`, async ({ page }) => {
    await page.goto(server.url + path);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText(heading);
    if (SCREENS.some(([own]) => own === path)) await expect(page.locator("main table tbody tr").first()).toBeVisible();
    await page.keyboard.press(".");
    await accessible(page, path);
    await page.setViewportSize({ width: 360, height: 780 });
    await fits(page, path);
    await accessible(page, `${path} at 360 px`);
    await page.setViewportSize({ width: 768, height: 900 });
    await fits(page, path);
  });
}

test("a workflow is told alike by graph, timeline and table", async ({ page }) => {
  await page.goto(`${server.url}/workflows`);
  await page.locator("tr[data-row] a").first().click();
  const steps = page.locator(".graph a");
  await expect(steps).toHaveCount(11);
  await expect(page.locator(".graph .edge")).toHaveCount(10);
  await page.keyboard.press(".");
  await accessible(page, "graph");
  await page.getByRole("link", { name: "Timeline" }).click();
  await expect(page.locator(".timeline li")).toHaveCount(11);
  await accessible(page, "timeline");
  await page.setViewportSize({ width: 360, height: 780 });
  await fits(page, "timeline");
  await page.getByRole("link", { name: "Table" }).click();
  await expect(page.locator("tr[data-row]")).toHaveCount(11);
  await accessible(page, "steps");
});

test("charts can be walked by keys and read as a table", async ({ page }) => {
  await page.goto(`${server.url}/`);
  const chart = page.getByRole("slider", { name: "Throughput, point by point" });
  // A line needs two samples, which come every ten seconds.
  await expect(chart).toHaveAttribute("aria-valuenow", /[1-9]/, { timeout: 60_000 });
  await chart.focus();
  const last = await chart.getAttribute("aria-valuetext");
  await page.keyboard.press("Home");
  await expect(chart).toHaveAttribute("aria-valuenow", "0");
  expect(await chart.getAttribute("aria-valuetext")).not.toBe(last);
  await page.getByRole("figure", { name: "Throughput" }).getByRole("button", { name: "As a table" }).click();
  await expect(page.getByRole("region", { name: "Throughput, as a table" })).toBeVisible();
  await accessible(page, "chart as a table");
});

test("rows stay in their places, and new ones come when asked for", async ({ page }) => {
  await page.goto(`${server.url}/jobs?limit=25`);
  const rows = page.locator("tr[data-row]");
  await expect(rows).toHaveCount(25);
  const ids = () => rows.evaluateAll((all) => all.map((row) => (row as HTMLElement).dataset.row));
  const before = await ids();
  await expect(page.getByRole("button", { name: /new · show/ })).toBeVisible();
  expect(await ids()).toEqual(before);
  await page.getByRole("button", { name: /new · show/ }).click();
  await expect.poll(ids).not.toEqual(before);
});

test("every figure leads to the list that it counts", async ({ page }) => {
  await page.goto(`${server.url}/queues/mail`);
  await page.getByRole("link", { name: /^Failed/ }).click();
  await expect(page).toHaveURL(/queue=mail&state=failed/);
  await expect(page.locator("tr[data-row]").first()).toContainText("email.send");
});

test("a paused or hidden page asks nothing", async ({ page }) => {
  await page.goto(`${server.url}/`);
  await expect(page.locator(".figures .value").first()).toHaveText(/\d/);
  await page.keyboard.press(".");
  await expect(page.getByRole("button", { name: "paused" })).toBeVisible();
  let asked = 0;
  page.on("request", () => {
    asked += 1;
  });
  await page.waitForTimeout(3500);
  expect(asked).toBe(0);
});

test("one stream tells what changed, and a hidden tab asks nothing", async ({ page }) => {
  await page.addInitScript(() => {
    let hidden = false;
    Object.defineProperty(document, "hidden", { get: () => hidden });
    Object.assign(window, {
      hide: (now: boolean) => {
        hidden = now;
        document.dispatchEvent(new Event("visibilitychange"));
      },
    });
  });
  const asked: string[] = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.goto(`${server.url}/jobs`);
  await expect(page.locator("tr[data-row]").first()).toBeVisible();
  await expect.poll(() => asked.filter((path) => path === "/v1/pulse").length).toBe(1);
  await expect(page.getByRole("button", { name: /new · show/ })).toBeVisible();
  const hide = (now: boolean) =>
    page.evaluate((to) => (window as unknown as { hide: (to: boolean) => void }).hide(to), now);
  await hide(true);
  asked.length = 0;
  await page.waitForTimeout(3000);
  expect(asked).toEqual([]);
  await hide(false);
  await expect.poll(() => asked).toContain("/v1/pulse");
});

test("keys lead everywhere, and can be switched off by closing the door", async ({ page }) => {
  await page.goto(`${server.url}/`);
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
  await accessible(page, "keys");
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("q");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Queues");
  await page.keyboard.press("t");
  await expect(page.locator("html")).toHaveAttribute("data-theme", "light");
  await page.goBack();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Overview");
});

test("when the server goes, the numbers stay and say so; when it comes back, so do they", async ({ page, watched }) => {
  watched.expected.push(/ERR_CONNECTION|failed:|Failed to load/);
  await page.goto(`${server.url}/queues`);
  const rows = page.locator("main table tbody tr");
  await expect(rows.first()).toBeVisible();
  const count = await rows.count();
  server.kill();
  await expect(page.getByText(/away for/)).toBeVisible();
  await expect(rows).toHaveCount(count);
  await expect(page.locator(".stale")).toBeVisible();
  const killed = Date.now();
  await server.restart();
  await expect(page.getByRole("button", { name: "live" })).toBeVisible({ timeout: 30_000 });
  await expect(page.locator(".stale")).toHaveCount(0);
  // What the charts showed before is still there.
  const { at } = (await server.call("GET", "/v1/series?of=rate&last=1h")) as { at: string[] };
  expect(at.filter((time) => Date.parse(time) < killed).length).toBeGreaterThan(1);
});

test("the first load is small and quick", async ({ page }) => {
  let [script, style, requests] = [0, 0, 0];
  page.on("response", async (response) => {
    if (!response.url().includes("/page/")) return;
    requests += 1;
    const sizes = await response.request().sizes();
    if (response.url().endsWith(".js")) script += sizes.responseBodySize;
    if (response.url().endsWith(".css")) style += sizes.responseBodySize;
  });
  await page.goto(`${server.url}/`, { waitUntil: "networkidle" }).catch(() => {});
  expect(requests).toBeLessThanOrEqual(5);
  expect(script).toBeGreaterThan(0);
  expect(script).toBeLessThan(75 * 1024);
  expect(style).toBeLessThan(12 * 1024);
});
