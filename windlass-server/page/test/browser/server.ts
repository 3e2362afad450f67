// A real server for each file of tests, on a store of its own, and a page that fails the test on anything unexpected.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { test as base, type Page } from "@playwright/test";

const BINARY =
  process.env.WINDLASS_BINARY ?? fileURLToPath(new URL("../../../../target/debug/windlass", import.meta.url));

export interface Started {
  url: string;
  folder: string;
  token: Record<string, string>;
  stop: () => Promise<void>;
  /** Ends it at once and starts it again on the same port and store. */
  restart: () => Promise<void>;
  kill: () => void;
  call: (method: string, path: string, body?: unknown, token?: string) => Promise<unknown>;
}

interface Options {
  demo?: boolean;
  /** A store that is there already, in place of a new one. */
  store?: string;
  tokens?: string[];
  config?: string;
  arguments?: string[];
}

function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("WINDLASS_")));
}

/** A new store: a file, or where the project of the test is called postgres, a schema of the server that WINDLASS_TEST_POSTGRES names. */
export function newStore(folder: string, kind = base.info().project.name): string {
  if (kind === "sqlite") return `sqlite:${join(folder, "jobs.db")}`;
  const server = process.env.WINDLASS_TEST_POSTGRES;
  if (!server) throw new Error("WINDLASS_TEST_POSTGRES must name a PostgreSQL server");
  return `${server}${server.includes("?") ? "&" : "?"}schema=page_${randomBytes(8).toString("hex")}`;
}

export async function start(options: Options = {}): Promise<Started> {
  const folder = mkdtempSync(join(tmpdir(), "windlass-page-"));
  const token: Record<string, string> = {};
  let config = options.config ?? "";
  for (const role of options.tokens ?? []) {
    token[role] = `windlass_${randomBytes(32).toString("base64url")}`;
    const sha256 = createHash("sha256").update(token[role]).digest("hex");
    config += `\n[[tokens]]\nname = "${role} of the tests"\nrole = "${role}"\nsha256 = "${sha256}"\n`;
  }
  writeFileSync(join(folder, "windlass.toml"), config);
  const store = options.store ?? newStore(folder);
  let child: ChildProcess | undefined;
  let port = "0";
  const begin = async () => {
    const given = [
      ...["run", "--config", join(folder, "windlass.toml"), "--store", store],
      ...["--listen", `127.0.0.1:${port}`, "--log", "json"],
      ...(options.demo ? ["--demo", "--seed", "7"] : []),
      ...(options.arguments ?? []),
    ];
    child = spawn(BINARY, given, { cwd: folder, env: environment(), stdio: ["ignore", "pipe", "ignore"] });
    const lines = createInterface({ input: child.stdout! });
    for await (const line of lines) {
      // What the server says later is read and dropped: a pipe that fills up would stop it.
      child.stdout?.resume();
      return (JSON.parse(line) as { listen: string }).listen;
    }
    throw new Error("the server ended before it said where it listens");
  };
  const started: Started = {
    url: "",
    folder,
    token,
    stop: async () => {
      const ended = new Promise((resolve) => child?.once("exit", resolve));
      child?.kill("SIGKILL");
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
    kill: () => child?.kill("SIGKILL"),
    restart: async () => {
      await begin();
    },
    call: async (method, path, body, role) => {
      const headers: Record<string, string> = { "content-type": "application/json" };
      if (role) headers.authorization = `Bearer ${token[role]}`;
      const init: RequestInit = { method, headers };
      if (body !== undefined) init.body = JSON.stringify(body);
      const response = await fetch(started.url + path, init);
      const text = await response.text();
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
      return text ? JSON.parse(text) : undefined;
    },
  };
  started.url = await begin();
  port = new URL(started.url).port;
  return started;
}

export function windlass(...given: string[]): string {
  return execFileSync(BINARY, given, { env: environment(), encoding: "utf8" });
}

interface Watched {
  /** What may appear on the console without failing the test. */
  expected: RegExp[];
  found: string[];
}

/** A page that fails its test on any error on the console, broken policy, failed request or request to another host. */
export const test = base.extend<{ watched: Watched; page: Page }>({
  // biome-ignore lint/correctness/noEmptyPattern: Playwright wants it so
  watched: async ({}, use) => {
    await use({ expected: [], found: [] });
  },
  page: async ({ page, watched }, use) => {
    const note = (what: string) => {
      if (!watched.expected.some((one) => one.test(what))) watched.found.push(what);
    };
    page.on("console", (message) => {
      if (message.type() === "error") note(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => note(`error: ${error.message}`));
    page.on("request", (request) => {
      const { hostname, protocol } = new URL(request.url());
      if (!["127.0.0.1", "localhost"].includes(hostname) && protocol !== "data:") note(`request: ${request.url()}`);
    });
    page.on("requestfailed", (request) => {
      // Answers that nobody waits for any more are given up; that is no failure.
      if (request.failure()?.errorText !== "net::ERR_ABORTED") note(`failed: ${request.url()}`);
    });
    await page.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) => {
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
      });
    });
    await use(page);
    if (watched.found.length > 0) throw new Error(`the page was not quiet:\n${watched.found.join("\n")}`);
  },
});

export { expect } from "@playwright/test";
