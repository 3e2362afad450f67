// Flow control on the page: limits of a queue, its keys, what blocks them, and what helps.

import { accessible, fits } from "./axe.ts";
import { expect, type Started, start, test } from "./server.ts";

let server: Started;

interface Claimed {
  jobs: { id: string; lease: { token: string } }[];
}

async function enqueue(job: object): Promise<string> {
  return ((await server.call("POST", "/v1/jobs", job)) as { id: string }).id;
}

async function claim(queue: string, max: number) {
  return ((await server.call("POST", "/v1/claims", { queues: [queue], max, worker: "tests/1" })) as Claimed).jobs;
}

test.beforeAll(async () => {
  server = await start();
});

test.afterAll(async () => server.stop());

test("a queue is brought under control, and its control ends, each as the dialog says", async ({ page }) => {
  await enqueue({ type: "letter", queue: "post", payload: 1 });
  await page.goto(`${server.url}/queues/post`);
  const card = page.getByRole("region", { name: "Flow control" });
  await expect(card).toContainText("None: what is ready is claimed as soon as a worker has room.");
  await card.getByRole("button", { name: "Set limits…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("button", { name: "Set", exact: true })).toBeDisabled();
  await dialog.getByLabel("Run at once", { exact: true }).fill("5");
  await dialog.getByLabel("Start, such as 100/s or 10/min").fill("not a rate");
  await expect(dialog.getByRole("button", { name: "Set", exact: true })).toBeDisabled();
  await dialog.getByLabel("Start, such as 100/s or 10/min").fill("100/s");
  await dialog.getByLabel("Of each key, run at once").fill("1");
  await dialog.getByLabel("Keys share by what runs, then by turn").check();
  await dialog.getByText("The same from a terminal").click();
  await expect(dialog).toContainText(
    "windlass queues control post --running 5 --rate 100/s --each-key-running 1 --fair",
  );
  await expect(dialog).toContainText(/curl -s -X PUT .*\/v1\/queues\/post\/control/);
  await accessible(page, "control of a queue");
  await dialog.getByRole("button", { name: "Set", exact: true }).click();
  await expect(dialog).toHaveCount(0);
  await expect(card).toContainText("5 jobs");
  await expect(card).toContainText("100 a second");
  await expect(page.locator(".head .pill")).toHaveText("controlled");
  const now = (await server.call("GET", "/v1/queues/post/control")) as { control: object };
  expect(now.control).toMatchObject({ running: 5, each_key: { running: 1 }, fair: true });
  await card.getByRole("button", { name: "End…" }).click();
  await dialog.getByRole("button", { name: "End the control" }).click();
  await expect(card).toContainText("None: what is ready");
});

test("keys show how they stand; a job says what blocks it; holding, limiting and resuming help", async ({ page }) => {
  await server.call("PUT", "/v1/queues/ordered/control", { ordered: "halt", each_key: { running: 1 } });
  for (const key of ["acme", "acme", "other"]) await enqueue({ type: "step", queue: "ordered", key, payload: 1 });
  const [first] = (await claim("ordered", 10)).filter(Boolean);
  expect(first).toBeDefined();
  const waits = (await server.call("GET", "/v1/jobs?queue=ordered&state=scheduled")) as { items: { id: string }[] };
  expect(waits.items).toHaveLength(1);
  const blocked = waits.items[0]!.id;
  await page.goto(`${server.url}/queues/ordered?keys=blocked`);
  const rows = page.getByRole("table", { name: /Keys of the queue/ }).locator("tr[data-row]");
  await expect(rows.filter({ hasText: "acme" })).toContainText("waits for its job before");
  await accessible(page, "keys of a queue");
  await page.setViewportSize({ width: 360, height: 780 });
  await fits(page, "keys of a queue");
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto(`${server.url}/jobs/${blocked}`);
  const why = page.getByRole("region", { name: "Why" });
  await expect(why.getByRole("link", { name: "to its key, and what helps" })).toBeVisible();
  // The job that runs fails for good: its key halts.
  const failure = { category: "permanent", code: "no", message: "it broke" };
  await server.call("POST", "/v1/leases/settle", {
    settlements: [{ id: first!.id, token: first!.lease.token, outcome: "failed", failure }],
  });
  await why.getByRole("link", { name: "to its key, and what helps" }).click();
  await expect(rows.filter({ hasText: "acme" })).toContainText("halted by a failed job");
  await page.getByRole("button", { name: "Resume acme" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("The same from a terminal").click();
  await expect(dialog).toContainText("windlass queues key ordered acme --resume");
  await accessible(page, "resume of a key");
  await dialog.getByRole("button", { name: "Resume", exact: true }).click();
  await expect(page.getByRole("status").getByText("The key acme goes on")).toBeVisible();
  await page.getByRole("link", { name: "All", exact: true }).click();
  await page.getByRole("button", { name: "Hold acme" }).click();
  await dialog.getByLabel("For").fill("10m");
  await dialog.getByRole("button", { name: "Hold", exact: true }).click();
  await expect(rows.filter({ hasText: "acme" })).toContainText("held");
  await page.getByRole("button", { name: "Limit acme" }).click();
  await dialog.getByLabel("Run at once").fill("3");
  await dialog.getByRole("button", { name: "Set", exact: true }).click();
  await expect(rows.filter({ hasText: "acme" })).toContainText("3 at once, its own");
  const acts = (await server.call("GET", "/v1/acts?target=queue%20ordered")) as { items: { act: string }[] };
  expect(acts.items.length).toBeGreaterThan(0);
});
