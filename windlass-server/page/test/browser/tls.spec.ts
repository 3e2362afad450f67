// The page over TLS: the binary's own, and behind a small proxy that shows it under a path.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, type Started, start, test } from "./server.ts";

const folder = mkdtempSync(join(tmpdir(), "windlass-tls-"));
const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];

test.use({ ignoreHTTPSErrors: true, permissions: ["clipboard-read", "clipboard-write"] });

test.beforeAll(() => {
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
  const made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  execFileSync("openssl", [...made, "-keyout", key, "-out", cert, ...subject], { stdio: "ignore" });
});

test.afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Signs in, acts, copies and signs out, at an address of the page. */
async function wholeVisit(page: import("@playwright/test").Page, address: string, token: string) {
  await page.goto(`${address}/queues`);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Queues");
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({
    name: "__Host-windlass",
    secure: true,
    httpOnly: true,
    sameSite: "Strict",
    path: "/",
  });
  await page.getByRole("link", { name: "over-tls", exact: true }).click();
  await page.getByRole("button", { name: "Pause over-tls" }).click();
  await expect(page.getByText(/^Paused.*nothing of it is claimed/)).toBeVisible();
  await page.getByText("The same from a terminal").click();
  const line = "windlass queues resume over-tls";
  await page.locator(".command", { hasText: line }).getByRole("button", { name: "Copy command" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(line);
  // The stream of what changes comes through, too.
  await expect(page.getByRole("button", { name: "live" })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("button", { name: "Resume over-tls" })).toBeVisible();
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByLabel("Token")).toBeVisible();
}

async function planted(config: string): Promise<Started> {
  const server = await start({ tokens: ["operate"], config });
  return server;
}

const JOB = { type: "over.tls", queue: "over-tls", payload: 1 };

test.beforeEach(({ watched }) => {
  watched.expected.push(/status of 401/);
});

test("the binary's own TLS serves the page, sessions and copying included", async ({ page }) => {
  const before = process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  const server = await planted(`[tls]\ncert = "${cert}"\nkey = "${key}"\n`);
  try {
    expect(server.url).toMatch(/^https:/);
    await server.call("POST", "/v1/jobs", JOB, "operate");
    await wholeVisit(page, server.url, server.token.operate!);
  } finally {
    await page.goto("about:blank");
    await server.stop();
    if (before === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    else process.env.NODE_TLS_REJECT_UNAUTHORIZED = before;
  }
});

/** A proxy with TLS that passes `Host` on and, if told to, takes the path off. */
async function proxied(to: string, strip: boolean): Promise<Server> {
  const { hostname, port } = new URL(to);
  const proxy = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (asked, answer) => {
    const path = strip ? asked.url!.replace(/^\/windlass(?=\/|$)/, "") || "/" : asked.url!;
    const on = request({ hostname, port, method: asked.method, path, headers: asked.headers }, (answered) => {
      answer.writeHead(answered.statusCode ?? 502, answered.headers);
      answered.pipe(answer);
    });
    on.on("error", () => answer.destroy());
    asked.pipe(on);
    answer.on("close", () => on.destroy());
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return proxy;
}

for (const strip of [false, true]) {
  test(`behind a proxy with TLS under a path that it ${strip ? "takes off" : "leaves on"}`, async ({ page }) => {
    const server = await planted('base = "/windlass"\nhosts = ["localhost"]\n');
    const proxy = await proxied(server.url, strip);
    try {
      await server.call("POST", "/v1/jobs", JOB, "operate");
      const { port } = proxy.address() as AddressInfo;
      await wholeVisit(page, `https://localhost:${port}/windlass`, server.token.operate!);
      expect(new URL(page.url()).pathname).toMatch(/^\/windlass\//);
    } finally {
      await page.goto("about:blank");
      proxy.closeAllConnections();
      proxy.close();
      await server.stop();
    }
  });
}
