// A store with planted cases: looking, finding, acting, and text that means harm.

import { accessible, fits } from "./axe.ts";
import { HOSTILE } from "./hostile.ts";
import { expect, type Started, start, test } from "./server.ts";

let server: Started;
const ids: string[] = [];

interface Claimed {
  jobs: { id: string; lease: { token: string } }[];
}

/** Lets one job of a queue fail for good. */
async function kill(queue: string, code: string, message: string) {
  const { jobs } = (await server.call("POST", "/v1/claims", { queues: [queue], max: 1, worker: "tests/1" })) as Claimed;
  const [job] = jobs;
  const failure = { category: "permanent", code, message };
  const settlement = { id: job?.id, token: job?.lease.token, outcome: "failed", failure };
  await server.call("POST", "/v1/leases/settle", { settlements: [settlement] });
  return job?.id ?? "";
}

async function enqueue(job: object): Promise<string> {
  return ((await server.call("POST", "/v1/jobs", job)) as { id: string }).id;
}

test.beforeAll(async () => {
  server = await start();
  for (let number = 0; number < 6; number += 1) {
    await enqueue({ type: "email.send", queue: "dying", payload: { number } });
    ids.push(await kill("dying", "no_such_mailbox", `550 user${number} does not exist`));
  }
  for (const [number, text] of HOSTILE.entries())
    await enqueue({
      type: `hostile.${number}`,
      queue: `hostile.${number}`,
      payload: { [text]: text, deep: "[".repeat(50) },
      tags: { harm: text },
      correlation_id: text,
    });
  await enqueue({ type: "hostile.failure", queue: "hostile.failure", payload: HOSTILE });
  ids.push(await kill("hostile.failure", "harm", HOSTILE.join("\n")));
  await enqueue({ type: "waits.long", queue: "later", delay: "2h", payload: 1 });
});

test.afterAll(async () => server.stop());

test("a dead job is found, read, and requeued, by keyboard alone", async ({ page }) => {
  await page.goto(`${server.url}/`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Overview");
  await page.keyboard.press("/");
  await page.keyboard.type("state:failed queue:dying");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/jobs\?state=failed&queue=dying/);
  await expect(page.locator("tr[data-row]")).toHaveCount(6);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("email.send");
  await expect(page.locator(".failure").first()).toContainText("550 user5 does not exist");
  await page.goBack();
  await expect(page.locator("tr[data-row]")).toHaveCount(6);
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await expect(page.getByText("2 jobs picked")).toBeVisible();
  await page.keyboard.press("r");
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("2 jobs will be requeued");
  await accessible(page, "bulk dialog");
  await dialog.getByLabel(/Reason/).focus();
  await page.keyboard.type("mailboxes are back");
  await dialog.getByRole("button", { name: "Requeue 2 jobs" }).focus();
  await page.keyboard.press("Enter");
  await expect(dialog.getByText("2 requeued", { exact: true })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);
  const acts = (await server.call("GET", "/v1/acts")) as { items: { reason?: string; changed: number }[] };
  expect(
    acts.items.filter((act) => act.reason === "mailboxes are back").reduce((sum, act) => sum + act.changed, 0),
  ).toBe(2);
});

test("an act on all that match takes only those that matched", async ({ page }) => {
  for (let number = 0; number < 4; number += 1) {
    await enqueue({ type: "email.send", queue: "matching", payload: { number } });
    await kill("matching", "gone", `user${number} is gone`);
  }
  await page.goto(`${server.url}/jobs?state=failed&queue=matching`);
  await page.getByRole("button", { name: "Act on all that match…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("4 jobs will be requeued");
  await enqueue({ type: "email.send", queue: "matching", payload: {} });
  const late = await kill("matching", "late", "died after the look");
  await dialog.getByRole("button", { name: "Requeue 4 jobs" }).click();
  await expect(dialog.getByText("4 requeued", { exact: true })).toBeVisible();
  const job = (await server.call("GET", `/v1/jobs/${late}`)) as { state: string };
  expect(job.state).toBe("failed");
});

test("what producers wrote shows as text and does not run", async ({ page }) => {
  await page.goto(`${server.url}/jobs?queue=hostile.failure`);
  await expect(page.getByText("<img src=x onerror=window.harmed=1>").first()).toBeVisible();
  await fits(page, "jobs with long words");
  const found = (await server.call("GET", "/v1/jobs?limit=200")) as { items: { id: string; queue: string }[] };
  const hostile = found.items.filter((job) => job.queue.startsWith("hostile"));
  for (const job of hostile) {
    await page.goto(`${server.url}/jobs/${job.id}?tab=payload`);
    await expect(page.locator(".json")).toBeVisible();
    await fits(page, job.id);
    await page.setViewportSize({ width: 360, height: 780 });
    await fits(page, job.id);
    await page.setViewportSize({ width: 1280, height: 800 });
  }
  await page.goto(`${server.url}/jobs/${ids.at(-1)}`);
  await expect(page.getByText("U+202E").first()).toBeVisible();
  await expect(page.locator(".failure").first()).toContainText("<script>window.harmed=1</script>");
  await page.goto(`${server.url}/queues`);
  await expect(page.getByText("hostile.0")).toBeVisible();
  expect(await page.evaluate(() => (window as { harmed?: number }).harmed)).toBeUndefined();
});

test("a number of thirty digits keeps them all", async ({ page }) => {
  const response = await fetch(`${server.url}/v1/jobs`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: '{"type":"exact","queue":"exact","payload":{"n":123456789012345678901234567890}}',
  });
  const { id } = (await response.json()) as { id: string };
  await page.goto(`${server.url}/jobs/${id}?tab=payload`);
  await expect(page.getByText("123456789012345678901234567890")).toBeVisible();
});

test("a waiting job says why, and what helps", async ({ page }) => {
  const id = await enqueue({ type: "held", queue: "held", payload: {} });
  await server.call("POST", "/v1/queues/held/pause");
  await page.goto(`${server.url}/jobs/${id}`);
  const why = page.getByRole("region", { name: "Why" });
  await expect(why).toContainText(/paused/);
  await accessible(page, "waiting job");
  await why.getByRole("button", { name: "Resume the queue" }).click();
  await expect(why).not.toContainText(/paused/);
  await expect(why).toContainText(/no.*worker/i);
});

test("one job is edited, cancelled and deleted, each as a record tells", async ({ page }) => {
  const id = await enqueue({ type: "acted.on", queue: "acted", payload: {} });
  await page.goto(`${server.url}/jobs/${id}`);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Priority").selectOption("high");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.locator("dl.facts").first()).toContainText("high");
  await page.getByRole("button", { name: "Cancel" }).click();
  await accessible(page, "cancel dialog");
  await page.getByRole("button", { name: "Cancel the job" }).click();
  await expect(page.locator(".head .badge")).toHaveText("Cancelled");
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Delete for good" }).click();
  await expect(page).toHaveURL(/\/jobs$/);
});

test("conditions that are not understood are explained", async ({ page }) => {
  await page.goto(`${server.url}/jobs?find=colour:red`);
  await expect(page.getByRole("alert")).toContainText("colour: is not known");
  await page.getByLabel("Conditions", { exact: true }).fill("type:exact");
  await page.getByRole("button", { name: "Find" }).click();
  await expect(page).toHaveURL(/type=exact/);
});

test("a queue is paused and goes on", async ({ page }) => {
  await page.goto(`${server.url}/queues/later`);
  await page.getByRole("button", { name: "Pause later" }).click();
  await expect(page.getByText(/^Paused.*nothing of it is claimed/)).toBeVisible();
  await accessible(page, "paused queue");
  await page.getByRole("button", { name: "Resume later" }).click();
  await expect(page.getByText(/^Paused.*nothing of it is claimed/)).toHaveCount(0);
});
