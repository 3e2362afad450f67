// Takes a picture of every screen, in both themes, at 1280 and at 360 pixels: `node test/pictures.mjs FOLDER`.
//
// WINDLASS_BINARY names the binary; without it the debug build is taken. Each is written as PNG, to be looked at, and as WebP,
// which is small, for docs/pictures.

import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "@playwright/test";

const binary = process.env.WINDLASS_BINARY ?? fileURLToPath(new URL("../../../target/debug/windlass", import.meta.url));
const into = process.argv[2] ?? "pictures";
const only = process.argv[3]?.split(",");
const SETTLE_MS = Number(process.env.WINDLASS_SETTLE_MS ?? 90_000);
mkdirSync(into, { recursive: true });

const folder = mkdtempSync(join(tmpdir(), "windlass-pictures-"));

async function serve(given, config) {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("WINDLASS_")));
  const store = [
    "--store",
    `sqlite:${join(folder, `${Math.random()}.db`)}`,
    "--listen",
    "127.0.0.1:0",
    "--log",
    "json",
  ];
  const child = spawn(binary, ["run", ...store, ...given], { env, cwd: folder, stdio: ["ignore", "pipe", "ignore"] });
  for await (const line of createInterface({ input: child.stdout })) {
    child.stdout.resume();
    return { child, url: JSON.parse(line).listen, config };
  }
  throw new Error("the server did not start");
}

const { child, url } = await serve(["--demo", "--seed", "7"]);
const call = async (method, path, body) => {
  const response = await fetch(url + path, {
    method,
    headers: { "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
  return response.status === 204 ? undefined : response.json();
};
const first = async (path) => (await call("GET", path)).items[0];

const found = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const browser = await chromium.launch({
  executablePath: process.env.WINDLASS_CHROMIUM ?? found,
  chromiumSandbox: process.getuid?.() !== 0,
});

// What an operator would have done: a nightly schedule, a paused queue, a queue under control with a halted key.
await call("POST", "/v1/schedules", {
  ...{ name: "nightly-report", cron: "30 2 * * *", zone: "Europe/Berlin" },
  job: { type: "report.build", payload: {} },
});
await call("PUT", "/v1/queues/tenants/control?by=ada", {
  ...{ running: 20, rate: { count: 50, per: "1s" }, each_key: { running: 2 }, fair: true, ordered: "halt" },
});
for (const key of ["acme", "acme", "acme", "globex", "globex", "initech", "umbrella"])
  await call("POST", "/v1/jobs", { type: "invoice.send", queue: "tenants", key, payload: { tenant: key } });
const { jobs } = await call("POST", "/v1/claims", { queues: ["tenants"], max: 3, worker: "billing-1/4711" });
const failure = { category: "permanent", code: "no_such_account", message: "account 4711 does not exist" };
await call("POST", "/v1/leases/settle", {
  settlements: [{ id: jobs[0].id, token: jobs[0].lease.token, outcome: "failed", failure }],
});
await call("POST", "/v1/queues/tenants/keys/umbrella/hold?by=ada", { time: "1h" });
await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));

const dead = await first("/v1/jobs?state=failed,dead_letter&limit=1&queue=mail");
const group = await first("/v1/errors");
const flow = await first("/v1/workflows");
await call("POST", "/v1/queues/reports/pause?by=ada").catch(() => {});
const SCREENS = {
  overview: "/",
  jobs: "/jobs",
  job: `/jobs/${dead.id}`,
  errors: "/errors",
  error: `/errors/${group.fingerprint}`,
  bulk: `/jobs?fingerprint=${group.fingerprint}`,
  queues: "/queues",
  queue: "/queues/mail",
  flow: "/queues/tenants",
  workflows: "/workflows",
  workflow: `/workflows/${flow.id}`,
  timeline: `/workflows/${flow.id}?tab=timeline`,
  schedules: "/schedules",
  schedule: "/schedules/nightly-report",
  "new-schedule": "/schedules/~new",
  workers: "/workers",
  acts: "/acts",
  enqueue: "/enqueue",
  server: "/server",
  palette: "/",
};

const DEVICES = [
  ["", { width: 1280, height: 800 }],
  ["-phone", { width: 360, height: 780 }],
];

// The page takes the system's own font, and a bare machine's is the widest there is. Pictures are taken with one like those of desktops,
// where it is installed (fonts-inter, fonts-jetbrains-mono).
const FONTS = `:root { --sans: Inter, system-ui, sans-serif; --mono: "JetBrains Mono", ui-monospace, monospace; }`;

async function open(viewport, colorScheme) {
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: "reduce" });
  await context.route("**/style-*.css", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()) + FONTS });
  });
  return context;
}

const scribe = await browser.newPage();

/** The same picture as WebP; the browser knows how to write that. */
async function shrink(name) {
  const source = `data:image/png;base64,${readFileSync(join(into, `${name}.png`)).toString("base64")}`;
  const data = await scribe.evaluate(async (from) => {
    const image = new Image();
    image.src = from;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d")?.drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", 0.55);
  }, source);
  writeFileSync(join(into, `${name}.webp`), Buffer.from(data.split(",")[1], "base64"));
}

async function picture(page, name) {
  await take(page, name);
  await shrink(name);
}

async function take(page, name) {
  await page.waitForTimeout(900);
  await page.screenshot({ path: join(into, `${name}.png`), fullPage: false });
  const high = await page.evaluate(() => document.documentElement.scrollHeight);
  const wide = page.viewportSize().width;
  if (high <= page.viewportSize().height || (await page.locator("dialog[open]").count()) > 0) return;
  await page.screenshot({
    path: join(into, `${name}.png`),
    clip: { x: 0, y: 0, width: wide, height: Math.min(high, 1400) },
    fullPage: true,
  });
}

for (const theme of ["light", "dark"]) {
  for (const [device, viewport] of DEVICES) {
    const context = await open(viewport, theme);
    const page = await context.newPage();
    await page.goto(url);
    await page.getByRole("button", { name: "Understood" }).click();
    for (const [name, path] of Object.entries(SCREENS)) {
      if (only && !only.includes(name)) continue;
      await page.goto(url + path);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page.waitForTimeout(600);
      if (name === "new-schedule") {
        await page.getByLabel("Name").fill("nightly");
        await page.getByLabel("Cron", { exact: true }).fill("30 2 * * 1-5");
        await page.getByLabel("Zone", { exact: true }).fill("Europe/Berlin");
        await page.getByLabel("Type").fill("report.build");
      }
      if (name === "palette") await page.keyboard.press("Control+k");
      if (name === "bulk") await page.getByRole("button", { name: "Act on all that match…" }).click();
      await picture(page, `${name}-${theme}${device}`);
    }
    await context.close();
  }
}
child.kill("SIGKILL");

if (!only || only.includes("sign-in")) {
  const config = join(folder, "windlass.toml");
  const sha256 = "0".repeat(64);
  writeFileSync(config, `[[tokens]]\nname = "nobody"\nrole = "read"\nsha256 = "${sha256}"\n`);
  const closed = await serve(["--config", config]);
  for (const theme of ["light", "dark"])
    for (const [device, viewport] of DEVICES) {
      const context = await open(viewport, theme);
      const page = await context.newPage();
      await page.goto(`${closed.url}/`);
      await page.getByLabel("Token").waitFor();
      await picture(page, `sign-in-${theme}${device}`);
      await context.close();
    }
  closed.child.kill("SIGKILL");
}
await browser.close();
rmSync(folder, { recursive: true, force: true });
