// The smaller screens, each for what it is there for; and the page under a prefix and for those who may only look.

import { accessible } from "./axe.ts";
import { expect, type Started, start, test } from "./server.ts";

let server: Started;

test.beforeAll(async () => {
  server = await start({ config: 'base = "/ops"\n' });
});

test.afterAll(async () => server.stop());

test("the page works under a prefix, links and calls included", async ({ page }) => {
  await page.goto(`${server.url}/ops`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Overview");
  await page.getByRole("link", { name: "Queues" }).click();
  await expect(page).toHaveURL(`${server.url}/ops/queues`);
  await expect(page.getByText("No queues yet.")).toBeVisible();
  await accessible(page, "no queues");
  await page.goto(`${server.url}/ops/jobs`);
  await expect(page.getByText("No jobs yet.")).toBeVisible();
  await accessible(page, "no jobs");
});

test("a job is enqueued with every digit of its payload, and followed", async ({ page }) => {
  await page.goto(`${server.url}/ops/enqueue`);
  await page.getByLabel("Type").fill("big.number");
  await page.getByLabel("Payload, JSON").fill('{"n": 123456789012345678901}');
  await page.getByLabel("Tags").fill("customer=7");
  await expect(page.getByText(/windlass enqueue big.number/)).toBeVisible();
  await page.getByRole("button", { name: "Enqueue" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("big.number");
  await page.getByRole("link", { name: "Payload" }).click();
  await expect(page.getByText("123456789012345678901")).toBeVisible();
  await expect(page.getByText("customer: 7")).toBeVisible();
});

test("a payload that is no JSON is not sent", async ({ page }) => {
  await page.goto(`${server.url}/ops/enqueue`);
  await page.getByLabel("Type").fill("x");
  await page.getByLabel("Payload, JSON").fill("{oops");
  await expect(page.getByRole("alert")).toContainText("no JSON");
  await expect(page.getByRole("button", { name: "Enqueue" })).toBeDisabled();
});

test("what needs somebody stands on the first screen, with what helps", async ({ page }) => {
  await page.goto(`${server.url}/ops/`);
  // A store that answers slowly, as on a busy machine, needs somebody, too; this is about a queue.
  await expect(page.getByRole("region", { name: "Attention" })).toContainText(/Nothing needs you\.|store/);
  await server.call("POST", "/v1/jobs", { type: "held.up", queue: "held", payload: 1 });
  await server.call("POST", "/v1/queues/held/pause?by=ada");
  await page.reload();
  const attention = page.getByRole("region", { name: "Attention" });
  await expect(attention).toContainText("1 job is ready in held, which is paused");
  await accessible(page, "attention");
  await attention.getByRole("button", { name: "Resume", exact: true }).click();
  await expect(attention).not.toContainText("held");
  await page.goto(`${server.url}/ops/acts`);
  await expect(page.locator("tr[data-row]")).toHaveCount(2);
  await expect(page.locator("tr[data-row]").last()).toContainText("ada");
});

test("a schedule shows what clock changes do to it before it is there", async ({ page, watched }) => {
  await page.goto(`${server.url}/ops/schedules/~new`);
  await page.getByLabel("Name").fill("nightly");
  await page.getByLabel("Cron", { exact: true }).fill("30 2 * * *");
  await page.getByLabel("Zone", { exact: true }).fill("Europe/Berlin");
  await page.getByLabel("Type").fill("report.build");
  const next = page.getByRole("region", { name: "Next firings" });
  await expect(next.locator("li").first()).toContainText("02:30:00");
  await expect(next).toContainText("clocks leave its time out that day");
  await expect(next).toContainText("its time comes twice that day; this is the first");
  await accessible(page, "new schedule");
  // A field that is being typed into is wrong for a while; the server says so, and the browser notes it.
  watched.expected.push(/status of 400/);
  await page.getByLabel("Cron", { exact: true }).fill("not cron");
  await expect(next.getByRole("alert")).toBeVisible();
  await page.getByLabel("Cron", { exact: true }).fill("30 2 * * *");
  await page.getByRole("button", { name: "Create" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("nightly");
  await accessible(page, "schedule");
  await page.getByRole("button", { name: "Fire now" }).click();
  await expect(page.getByRole("link", { name: "to its job" })).toBeVisible();
});

test("an edit that comes too late is refused and says so", async ({ page, watched }) => {
  watched.expected.push(/status of 412/);
  await server.call("POST", "/v1/schedules", { name: "shared", every: "1h", job: { type: "x", payload: 1 } });
  await page.goto(`${server.url}/ops/schedules/shared/edit`);
  await expect(page.getByLabel("Every")).toHaveValue("1h");
  await server.call("PUT", "/v1/schedules/shared", { name: "shared", every: "2h", job: { type: "x", payload: 1 } });
  await page.getByLabel("Every").fill("3h");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText("Somebody has changed it since it was loaded.")).toBeVisible();
  await page.getByRole("button", { name: "Load what is there now" }).click();
  await expect(page.getByLabel("Every")).toHaveValue("2h");
});

test("a worker is told to take no more jobs, and to take some again", async ({ page }) => {
  const report = { id: "web-1-4711", host: "web-1", queues: [{ queue: "mail", slots: 4, busy: 1 }] };
  await server.call("POST", "/v1/workers", report);
  await page.goto(`${server.url}/ops/workers`);
  const row = page.locator("tr[data-row='web-1-4711']");
  await row.getByRole("button", { name: "Drain web-1-4711" }).click();
  const asked = page.getByRole("dialog", { name: "Drain web-1-4711" });
  await expect(asked).toContainText("1 job it runs now goes on.");
  await asked.getByLabel(/^Reason/).fill("its disk");
  await asked.getByText("The same from a terminal").click();
  await expect(asked).toContainText("windlass workers drain web-1-4711 --reason 'its disk'");
  await expect(asked).toContainText(
    `curl -s ${server.url}/ops/v1/workers/web-1-4711/drain --json '{"reason":"its disk"}'`,
  );
  await accessible(page, "drain a worker");
  await asked.getByRole("button", { name: "Drain", exact: true }).click();
  await expect(row).toContainText("draining");
  await accessible(page, "a worker that drains");
  expect(await server.call("POST", "/v1/workers", report)).toEqual({ draining: true });
  // What it ran has ended: it can be stopped.
  await server.call("POST", "/v1/workers", { ...report, queues: [{ queue: "mail", slots: 4, busy: 0 }] });
  await expect(row).toContainText("drained");
  await row.getByRole("button", { name: "Resume web-1-4711" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume", exact: true }).click();
  await expect(row.getByRole("button", { name: "Drain web-1-4711" })).toBeVisible();
  await expect(row).not.toContainText(/drain(ing|ed)/);
  await page.goto(`${server.url}/ops/acts?target=worker web-1-4711`);
  await expect(page.locator("tr[data-row]")).toHaveCount(2);
  await expect(page.locator("tr[data-row]").last()).toContainText("its disk");
});

test("rows can stand close together", async ({ page }) => {
  await server.call("POST", "/v1/jobs", { type: "x", queue: "close", payload: 1 });
  const high = async () => {
    await page.goto(`${server.url}/ops/jobs`);
    return (await page.locator("tr[data-row]").first().boundingBox())!.height;
  };
  const roomy = await high();
  await page.goto(`${server.url}/ops/server`);
  await page.getByRole("combobox", { name: /^Rows/ }).selectOption("dense");
  expect(await high()).toBeLessThan(roomy);
  await accessible(page, "close rows");
});

test("single letters can be switched off", async ({ page }) => {
  await page.goto(`${server.url}/ops/server`);
  await page.getByLabel(/Single letters are keys/).uncheck();
  await page.getByRole("heading", { level: 1 }).click();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await page.getByRole("combobox", { name: /^Times/ }).selectOption("utc");
  await page.getByRole("button", { name: "Check the store" }).click();
  await expect(page.getByText("No contradiction was found.")).toBeVisible();
});

test("on a server that is read-only nobody acts, whatever they try", async ({ page }) => {
  const readOnly = await start({ arguments: ["--read-only"] });
  try {
    await page.goto(`${readOnly.url}/enqueue`);
    await expect(page.getByText("You may only look.")).toBeVisible();
    const response = await fetch(`${readOnly.url}/v1/jobs`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: '{"type":"x","payload":1}',
    });
    expect(response.status).toBe(403);
    await page.goto(`${readOnly.url}/schedules`);
    await page.waitForLoadState("networkidle");
    await expect(page.getByRole("link", { name: "New schedule" })).toHaveCount(0);
  } finally {
    // A page that asks a server which is gone would not be quiet.
    await page.goto("about:blank");
    await readOnly.stop();
  }
});
