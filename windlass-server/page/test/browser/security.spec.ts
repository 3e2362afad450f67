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
