// What the page says is true: figures and their lists, groups of errors, reasons, orders, firings, and frozen sets.

import { accessible, fits } from "./axe.ts";
import { expect, type Started, start, test } from "./server.ts";

let server: Started;

interface Claimed {
  jobs: { id: string; lease: { token: string } }[];
}

async function enqueue(job: object): Promise<string> {
  return ((await server.call("POST", "/v1/jobs", job)) as { id: string }).id;
}

async function claim(queue: string, max = 1) {
  return ((await server.call("POST", "/v1/claims", { queues: [queue], max, worker: "tests/1" })) as Claimed).jobs;
}

/** Lets jobs die, with a message for each number. */
async function die(queue: string, count: number, failure: (number: number) => object) {
  const jobs = Array.from({ length: count }, (_, number) => ({ type: "letter.send", queue, payload: { number } }));
  await server.call("POST", "/v1/jobs/batch", { jobs });
  const settlements = (await claim(queue, count)).map(({ id, lease: { token } }, number) => ({
    ...{ id, token, outcome: "failed" },
    failure: { category: "permanent", ...failure(number) },
  }));
  await server.call("POST", "/v1/leases/settle", { settlements });
  return settlements.map(({ id }) => id);
}

test.beforeAll(async () => {
  server = await start({ config: "[webhooks]\n" });
});

test.afterAll(async () => server.stop());

test("failures with varying ids make as many groups as there are faults, each to be acted on alone", async ({
  page,
}) => {
  await die("post", 12, (number) => ({ code: "no_box", message: `box ${number} of user${number * 7} is not there` }));
  await die("post", 5, (number) => ({
    message: `order 550e8400-e29b-41d4-a716-44665544000${number} took ${number} ms`,
  }));
  await die("post", 3, (number) => ({ message: `cannot open "/var/spool/${number}.txt"` }));
  await page.goto(`${server.url}/`);
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Errors");
  const rows = page.locator("tr[data-row]");
  await expect(rows).toHaveCount(3);
  await accessible(page, "errors");
  await page.getByRole("combobox", { name: "Order" }).selectOption("largest first");
  await expect.poll(() => page.locator('td[data-label="Jobs"]').allTextContents()).toEqual(["12", "5", "3"]);
  await page.setViewportSize({ width: 360, height: 780 });
  await fits(page, "errors");
  await page.setViewportSize({ width: 1280, height: 800 });
  // The keyboard alone: to the group, and to its requeue.
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page.locator(".failure.pattern")).toContainText("order");
  await expect(page.locator(".varies").first()).toBeVisible();
  await accessible(page, "error group");
  await page.getByRole("button", { name: "Requeue the group" }).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("5 jobs will be requeued");
  await accessible(page, "requeue of a group");
  await dialog.getByRole("button", { name: "Requeue 5 jobs" }).focus();
  await page.keyboard.press("Enter");
  await expect(dialog.getByText("5 requeued", { exact: true })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Nothing is left of this group");
  const left = (await server.call("GET", "/v1/errors")) as { items: { count: number }[] };
  expect(left.items.map(({ count }) => count).sort()).toEqual([12, 3]);
  await page.goto(`${server.url}/errors?state=retrying`);
  await expect(page.getByText("No job is between two tries now.")).toBeVisible();
});

test("a frozen set is requeued while others die, and the record says who, how many and why", async ({ page }) => {
  await die("frozen", 30, () => ({ code: "frozen", message: "cold" }));
  await page.goto(`${server.url}/jobs?state=failed&queue=frozen`);
  await page.getByRole("button", { name: "Act on all that match…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("30 jobs will be requeued");
  const late = await die("frozen", 50, () => ({ code: "frozen", message: "cold" }));
  await dialog.getByLabel(/Reason/).fill("the heating is back");
  await dialog.getByRole("button", { name: "Requeue 30 jobs" }).click();
  await expect(dialog.getByText("30 requeued", { exact: true })).toBeVisible();
  const { items } = (await server.call("POST", "/v1/jobs/find?payloads=false", { ids: late })) as {
    items: { state: string }[];
  };
  expect(items.filter((job) => job.state === "failed")).toHaveLength(50);
  await dialog.getByRole("link", { name: "To the record" }).click();
  const acts = page.locator("tr[data-row]", { hasText: "the heating is back" });
  await expect(acts.first()).toBeVisible();
  const changed = await acts.locator('td[data-label="Changed"]').allTextContents();
  expect(changed.reduce((sum, text) => sum + Number(text), 0)).toBe(30);
  await page.getByLabel("Did").fill("requeue");
  await page.getByRole("button", { name: "Find" }).click();
  await expect(page).toHaveURL(/act=requeue/);
  await accessible(page, "acts of one kind");
});

test("what is next up is what is claimed next", async ({ page }) => {
  for (const priority of ["low", "normal", "critical", "bulk", "high", "normal"])
    await enqueue({ type: `p.${priority}`, queue: "lined-up", priority, payload: 1 });
  await page.goto(`${server.url}/queues/lined-up`);
  const rows = page.getByRole("table", { name: /The next ten/ }).locator("tr[data-row]");
  await expect(rows).toHaveCount(6);
  await accessible(page, "a queue with charts and next up");
  const shown = await rows.evaluateAll((all) => all.map((row) => (row as HTMLElement).dataset.row));
  await page.goto(`${server.url}/jobs?queue=lined-up&state=scheduled`);
  await expect(page.locator("tr[data-row]")).toHaveCount(6);
  const listed = await page
    .locator("tr[data-row]")
    .evaluateAll((all) => all.map((row) => (row as HTMLElement).dataset.row));
  const claimed: string[] = [];
  for (let round = 0; round < 6; round += 1) claimed.push((await claim("lined-up"))[0]!.id);
  expect(shown).toEqual(claimed);
  expect(listed).toEqual(claimed);
});

test("every figure is the length of the list that it leads to", async ({ page }) => {
  await enqueue({ type: "later", queue: "figures", delay: "1h", payload: 1 });
  await enqueue({ type: "soon", queue: "figures", payload: 1 });
  for (const path of ["/", "/queues", "/queues/frozen", "/queues/figures", "/jobs", "/errors"]) {
    await page.goto(server.url + path);
    await expect(page.locator("main table tbody tr, main .empty").first()).toBeVisible();
    await page.keyboard.press(".");
    await page.waitForTimeout(300);
    const links = await page.evaluate(() =>
      [...document.querySelectorAll<HTMLAnchorElement>("main a[href*='/jobs']")]
        .map((link) => ({
          to: link.getAttribute("href") ?? "",
          text: (link.querySelector(".value, .count") ?? link).textContent?.trim().replaceAll(",", "") ?? "",
        }))
        .filter(({ to, text }) => /^\/jobs(\?|$)/.test(to) && /^\d+$/.test(text)),
    );
    expect(links.length, path).toBeGreaterThan(0);
    for (const { to, text } of links) {
      let [count, cursor] = [0, ""];
      do {
        const asked = new URLSearchParams(to.split("?")[1] ?? "");
        asked.set("limit", "1000");
        asked.set("payloads", "false");
        if (cursor) asked.set("cursor", cursor);
        const listed = (await server.call("GET", `/v1/jobs?${asked}`)) as { items: []; next_cursor?: string };
        count += listed.items.length;
        cursor = listed.next_cursor ?? "";
      } while (cursor);
      expect(count, `${path}: ${to} says ${text}`).toBe(Number(text));
    }
  }
});

test("each reason why a job waits is told with what helps", async ({ page }) => {
  const expectWhy = async (id: string, words: RegExp, remedy: RegExp) => {
    await page.goto(`${server.url}/jobs/${id}`);
    const why = page.getByRole("region", { name: "Why" });
    await expect(why).toContainText(words);
    await expect(why).toContainText(remedy);
  };
  const delayed = await enqueue({ type: "why", queue: "why", delay: "1h", payload: 1 });
  await expectWhy(delayed, /./, /left; in/);
  const unserved = await enqueue({ type: "why", queue: "why", payload: 1 });
  await expectWhy(unserved, /no .*worker/i, /windlass worker --queue why/);
  const waiting = await enqueue({ type: "why", queue: "why", payload: 1, depends_on: [{ job: unserved }] });
  await expectWhy(waiting, /wait/i, new RegExp(unserved.slice(0, 8)));
  await server.call("POST", "/v1/workers", {
    id: "tests/2",
    host: "here",
    queues: [{ queue: "why", slots: 1 }],
    types: ["other"],
  });
  await expectWhy(unserved, /type/i, /--type why/);
  const ahead = await enqueue({ type: "other", queue: "why", priority: "bulk", payload: 1 });
  await expectWhy(ahead, /first|ahead/i, /in the order of their claims/);
  await server.call("POST", "/v1/queues/why/pause?by=ada");
  await expectWhy(unserved, /paused/i, /Resume the queue/);
  await accessible(page, "reasons");
  await page.getByRole("button", { name: "Resume the queue" }).click();
  await expect(page.getByRole("region", { name: "Why" })).not.toContainText(/paused/i);
  const failing = await enqueue({ type: "why", queue: "why-fails", payload: 1 });
  const [lease] = await claim("why-fails");
  const failure = { category: "temporary", message: "once more", retry_after: "10m" };
  await server.call("POST", "/v1/leases/settle", {
    settlements: [{ id: lease!.id, token: lease!.lease.token, outcome: "failed", failure }],
  });
  await expectWhy(failing, /tr(y|ied)|fail/i, /left; in/);
});

test("a daily firing at half past two is noted around both clock changes of 2027", async ({ page }) => {
  await server.call("POST", "/v1/schedules", {
    ...{ name: "nightly", cron: "30 2 * * *", zone: "Europe/Berlin" },
    job: { type: "report", payload: 1 },
  });
  await page.goto(`${server.url}/schedules/nightly`);
  const next = page.getByRole("region", { name: "Next firings" });
  await expect(next).toContainText("2027-03-28");
  await expect(next).toContainText("clocks leave its time out that day");
  await expect(next).toContainText("2027-10-31");
  await expect(next).toContainText("its time comes twice that day; this is the first");
  await page.goto(`${server.url}/schedules/~new`);
  await page.getByLabel("Cron", { exact: true }).fill("0 0 29 2 *");
  await page.getByLabel("Zone", { exact: true }).fill("UTC");
  await expect(page.getByRole("region", { name: "Next firings" })).toContainText("it hardly ever fires");
  await accessible(page, "a warning about a schedule");
});

test("the life of a job is told moment by moment", async ({ page }) => {
  const id = await enqueue({ type: "lives", queue: "lives", payload: 1 });
  const [lease] = await claim("lives");
  await server.call("POST", "/v1/leases/settle", {
    settlements: [
      {
        id: lease!.id,
        token: lease!.lease.token,
        outcome: "failed",
        failure: { category: "permanent", message: "no" },
      },
    ],
  });
  await server.call("POST", `/v1/jobs/${id}/requeue?by=ada`, { reason: "once more" });
  await page.goto(`${server.url}/jobs/${id}`);
  const slider = page.getByRole("slider", { name: "Moment of the job's life" });
  await expect(slider).toHaveAttribute("aria-valuetext", /scheduled; ready/);
  await slider.focus();
  await page.keyboard.press("ArrowLeft");
  await expect(slider).toHaveAttribute("aria-valuetext", /requeue, by ada/);
  await page.keyboard.press("Home");
  await expect(slider).toHaveAttribute("aria-valuetext", /submitted/);
  await page.keyboard.press("ArrowRight");
  await expect(slider).toHaveAttribute("aria-valuetext", /running; claimed, try 1, on tests\/1, lease 1/);
  await page.getByText("The same as a list").click();
  await expect(page.getByText("“once more”").first()).toBeVisible();
  await accessible(page, "history");
});

test("text is found in payloads, and a key finds its job", async ({ page }) => {
  const id = await enqueue({
    type: "found",
    queue: "found",
    payload: { to: "Needle@example.com" },
    idempotency_key: "key-7",
  });
  await page.goto(`${server.url}/jobs`);
  await page.getByLabel("Conditions", { exact: true }).fill("needle");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/text=needle/);
  await expect(page.locator("tr[data-row]")).toHaveCount(1);
  await page.getByLabel("Conditions", { exact: true }).fill("key:key-7");
  await page.keyboard.press("Enter");
  await expect(page.locator(`tr[data-row="${id}"]`)).toBeVisible();
});
