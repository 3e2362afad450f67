// Who may come in, and what they may do then. The API decides; these tests ask it, and not only the page.

import { accessible } from "./axe.ts";
import { expect, type Started, start, test } from "./server.ts";

let server: Started;
let job = "";

test.beforeAll(async () => {
  server = await start({ tokens: ["read", "operate", "admin"], config: "hide_payloads = true\n" });
  const made = await server.call("POST", "/v1/jobs", { type: "secret.job", payload: { secret: "xyzzy" } }, "operate");
  job = (made as { id: string }).id;
});

test.afterAll(async () => server.stop());

// Being asked for a token is what these tests are about; the browser notes it as an error.
test.beforeEach(({ watched }) => {
  watched.expected.push(/status of 401/, /status of 403/);
});

const signIn = async (page: import("@playwright/test").Page, token: string) => {
  await page.goto(`${server.url}/jobs`);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
};

test("a wrong token is refused with words, and the screen is for everybody", async ({ page }) => {
  await signIn(page, "windlass_wrong");
  await expect(page.getByRole("alert")).toContainText("does not know this token");
  await accessible(page, "sign-in");
});

test("somebody who may only look sees no acts and no payloads", async ({ page }) => {
  await signIn(page, server.token.read!);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Jobs");
  await expect(page).toHaveURL(/\/jobs$/);
  await expect(page.getByText("read of the tests")).toBeVisible();
  await page.goto(`${server.url}/jobs/${job}?tab=payload`);
  await expect(page.getByText("The payload is hidden from you.")).toBeVisible();
  await expect(page.getByRole("button", { name: "Cancel" })).toHaveCount(0);
  const answers = await page.evaluate(async (id) => {
    const asked = async (method: string, path: string) => (await fetch(path, { method })).status;
    return [
      await asked("GET", "/v1/jobs"),
      await asked("GET", `/v1/jobs/${id}/payload`),
      await asked("POST", `/v1/jobs/${id}/cancel`),
      await asked("DELETE", `/v1/jobs/${id}`),
      await asked("GET", "/v1/check"),
    ];
  }, job);
  expect(answers).toEqual([200, 403, 403, 403, 403]);
  expect(await page.evaluate(async (id) => (await fetch(`/v1/jobs/${id}`)).text(), job)).not.toContain("xyzzy");
});

test("what is hidden leaks by no list, search, export, history, attempt or group", async ({ page }) => {
  const { id } = (await server.call(
    "POST",
    "/v1/jobs",
    { type: "leaks", queue: "leaks", payload: "xyzzy", max_attempts: 1 },
    "admin",
  )) as { id: string };
  const claim = { queues: ["leaks"], max: 1, worker: "tests/1" };
  const claimed = (await server.call("POST", "/v1/claims", claim, "admin")) as {
    jobs: { id: string; lease: { token: string } }[];
  };
  const failure = { category: "permanent", message: "xyzzy is broken", causes: ["because of xyzzy"] };
  await server.call(
    "POST",
    "/v1/leases/settle",
    { settlements: [{ id, token: claimed.jobs[0]!.lease.token, outcome: "failed", failure }] },
    "admin",
  );
  await signIn(page, server.token.read!);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Jobs");
  const paths = [
    "/v1/jobs?limit=200",
    "/v1/jobs?text=xyzzy",
    "/v1/jobs/count?text=xyzzy",
    "/v1/errors",
    ...["", "/history", "/attempts", "/explain", "/logs", "/payload"].map((part) => `/v1/jobs/${id}${part}`),
  ];
  const told = await page.evaluate(
    (all) =>
      Promise.all(
        all.map(async (path) => {
          const answer = await fetch(path);
          return `${path} ${answer.status} ${await answer.text()}`;
        }),
      ),
    paths,
  );
  // A count that depends on what is searched for would tell it, too: such a search is refused.
  for (const answer of told) {
    expect(answer.replaceAll("text=xyzzy", "")).not.toContain("xyzzy");
    if (answer.includes("text=xyzzy")) expect(answer).toMatch(/ 40[03] /);
  }
  // Whoever may see it does.
  const seen = JSON.stringify(await server.call("GET", `/v1/jobs/${id}/history`, undefined, "admin"));
  expect(seen).toContain("xyzzy");
  for (const path of [`/jobs/${id}`, "/errors", "/jobs?queue=leaks"]) {
    await page.goto(server.url + path);
    await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
    await expect(page.locator("main")).not.toContainText("xyzzy");
  }
});

test("a session acts under its token's name, never works, and ends when it is ended", async ({ page, context }) => {
  await signIn(page, server.token.admin!);
  await expect(page.getByText("admin of the tests")).toBeVisible();
  const [cookie] = await context.cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict", secure: false });
  expect(cookie?.name).toBe(`windlass-${new URL(server.url).port}`);
  expect(cookie?.value).not.toContain(server.token.admin!);
  expect(await page.evaluate(() => document.cookie)).toBe("");
  expect(await page.evaluate(() => JSON.stringify(localStorage) + JSON.stringify(sessionStorage))).not.toContain(
    "windlass_",
  );
  const post = (path: string, body: unknown) =>
    page.evaluate(
      async ([to, text]) =>
        (await fetch(to!, { method: "POST", headers: { "content-type": "application/json" }, body: text! })).status,
      [path, JSON.stringify(body)],
    );
  expect(await post("/v1/queues/default/pause?by=somebody", {})).toBe(204);
  expect(await post("/v1/queues/default/resume", {})).toBe(204);
  expect(await post("/v1/claims", { queues: ["default"], worker: "w" })).toBe(403);
  const acts = (await server.call("GET", "/v1/acts", undefined, "admin")) as { items: { by: string }[] };
  expect(acts.items[0]?.by).toBe("admin of the tests");
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByLabel("Token")).toBeVisible();
  expect(await context.cookies()).toEqual([]);
});

test("a session does not count for other pages, and a forged one for nobody", async ({ page, context }) => {
  await signIn(page, server.token.admin!);
  await expect(page.getByText("admin of the tests")).toBeVisible();
  const [cookie] = await context.cookies();
  const sent = `${cookie?.name}=${cookie?.value}`;
  const asked = async (method: string, path: string, headers: Record<string, string>) =>
    (await fetch(server.url + path, { method, headers: { cookie: sent, ...headers } })).status;
  expect(await asked("GET", "/v1/jobs", {})).toBe(200);
  // What another site has a browser fetch is refused before anybody asks who it is.
  expect(await asked("GET", "/v1/jobs", { "sec-fetch-site": "cross-site" })).toBe(403);
  expect(await asked("POST", "/v1/queues/default/pause", {})).toBe(401);
  expect(await asked("POST", "/v1/queues/default/pause", { origin: server.url })).toBe(204);
  expect(await asked("POST", "/v1/queues/default/pause", { origin: "http://evil.example" })).toBe(403);
  expect(await asked("POST", "/v1/queues/default/resume", { "sec-fetch-site": "same-origin" })).toBe(204);
  expect(await asked("GET", "/v1/jobs", { cookie: sent.slice(0, -6) })).toBe(401);
  expect(await asked("GET", "/v1/jobs", { cookie: `${cookie?.name}=a.b.1.9999999999.c` })).toBe(401);
});

test("the page is not framed, runs nothing of others, and says what it needs", async ({ page, watched }) => {
  watched.expected.push(/frame/i, /chrome-error/);
  const response = await page.goto(`${server.url}/jobs/anything`);
  const headers = response?.headers() ?? {};
  expect(headers["content-security-policy"]).toContain("frame-ancestors 'none'");
  expect(headers["content-security-policy"]).toContain("require-trusted-types-for 'script'");
  expect(headers["cross-origin-opener-policy"]).toBe("same-origin");
  expect(headers["x-content-type-options"]).toBe("nosniff");
  expect(headers["referrer-policy"]).toBe("no-referrer");
  const wrote = await page.evaluate(() => {
    try {
      document.body.innerHTML = "<p>written</p>";
      return "written";
    } catch (error) {
      return (error as Error).name;
    }
  });
  expect(wrote).toBe("TypeError");
  watched.found.length = 0;
});
