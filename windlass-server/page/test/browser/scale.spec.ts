// A large store behind the page: every call that any screen makes, how long it takes, and that none of them walks.
//
// WINDLASS_SCALE_JOBS says how large: 20,000 for every change, 1,000,000 before a release (scripts/release-check), where
// WINDLASS_QUIET=1 holds the calls to their budgets. WINDLASS_SCALE_SQLITE and WINDLASS_SCALE_POSTGRES name stores that are
// filled already. WINDLASS_SCALE_CALLS names a folder in which the calls of the screens are kept, so that they can be collected while
// others work and timed when nobody does: see ../budgets.

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, newStore, type Started, start, test, windlass } from "./server.ts";

const JOBS = Number(process.env.WINDLASS_SCALE_JOBS ?? 20_000);
const ROUNDS = Number(process.env.WINDLASS_SCALE_ROUNDS ?? 20);

/** What a call may take at p95, in milliseconds, by its path; the first that fits counts. */
const BUDGETS: [path: RegExp, most: number][] = [
  [/^\/v1\/(lanes|queues)/, 20],
  [/^\/v1\/jobs\/[0-9a-f-]{36}(\/(explain|history|attempts|logs|payload))?(\?|$)/, 20],
  [/^\/v1\/series/, 40],
  [/^\/v1\/errors/, 80],
  // Looks at as many jobs as a call may: a condition without an index.
  [/^\/v1\/jobs(\/count)?\?.*(text|code|type|created|changed)/, 150],
  [/^\/v1\/jobs\/count/, 150],
  [/^\/v1\/jobs/, 40],
  [/./, 150],
];

const budget = (path: string) => BUDGETS.find(([own]) => own.test(path))![1];

/** Screens with what they ask for; `JOB`, `DEAD` and `GROUP` stand for ids. */
const SCREENS = [
  "/",
  "/?last=14d",
  "/?by=queue",
  "/jobs",
  "/jobs?state=scheduled&queue=mail",
  "/jobs?state=scheduled",
  "/jobs?state=delayed",
  "/jobs?state=completed",
  "/jobs?state=failed",
  "/jobs?state=failed,dead_letter&queue=mail.done",
  "/jobs?queue=reports",
  "/jobs?type=mail.kind3",
  "/jobs?tag.customer=7",
  "/jobs?correlation_id=order-17",
  "/jobs?code=code_8",
  "/jobs?text=nowhere",
  "/jobs?fingerprint=GROUP",
  "/jobs?limit=200",
  "/jobs/JOB",
  "/jobs/DEAD",
  "/jobs/DEAD?tab=payload",
  "/jobs/DEAD?tab=logs",
  "/errors",
  "/errors/GROUP",
  "/errors?state=retrying",
  "/queues",
  "/queues/mail",
  "/queues/mail.done",
  "/workflows",
  "/schedules",
  "/workers",
  "/acts",
  "/acts?tab=operations",
  "/enqueue",
  "/server",
];

for (const kind of ["sqlite", "postgres"]) {
  const there = process.env[`WINDLASS_SCALE_${kind.toUpperCase()}`];
  test.describe(`${kind}, ${JOBS} jobs`, () => {
    test.skip(kind === "postgres" && !there && !process.env.WINDLASS_TEST_POSTGRES, "no PostgreSQL server is named");
    let server: Started;
    let folder = "";
    const calls = new Set<string>();
    const folderOfCalls = process.env.WINDLASS_SCALE_CALLS;
    const collected = folderOfCalls ? join(folderOfCalls, `calls-${kind}.json`) : "";
    const ids: Record<string, string> = {};

    test.beforeAll(async () => {
      test.setTimeout(60 * 60_000);
      folder = mkdtempSync(join(tmpdir(), "windlass-scale-"));
      const store = there ?? newStore(folder, kind);
      if (!there) {
        windlass("store", "migrate", "--store", store);
        windlass("demo-fill", "--jobs", String(JOBS), "--store", store);
      }
      server = await start({ store });
      type Page = { items: { id: string; fingerprint: string }[] };
      const first = async (path: string) => ((await server.call("GET", path)) as Page).items[0]!;
      ids.JOB = (await first("/v1/jobs?state=scheduled&queue=mail&limit=1")).id;
      ids.DEAD = (await first("/v1/jobs?state=failed&limit=1")).id;
      ids.GROUP = (await first("/v1/errors")).fingerprint;
    });

    test.afterAll(async () => {
      await server.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    test("every screen shows itself, and its calls are answered", async ({ page }) => {
      test.setTimeout(10 * 60_000);
      page.on("request", (request) => {
        const { pathname, search } = new URL(request.url());
        if (request.method() === "GET" && pathname.startsWith("/v1/") && pathname !== "/v1/pulse")
          calls.add(pathname + search);
      });
      for (const screen of SCREENS) {
        await page.goto(server.url + screen.replace(/JOB|DEAD|GROUP/, (name) => ids[name]!));
        await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
        await expect(page.getByText("Loading…")).toHaveCount(0);
        await expect(page.locator(".notice.bad")).toHaveCount(0);
      }
      expect(calls.size).toBeGreaterThan(30);
      if (collected) writeFileSync(collected, JSON.stringify([...calls]));
    });

    test("no call of any screen takes longer than it may", async () => {
      test.setTimeout(20 * 60_000);
      if (collected && existsSync(collected))
        for (const path of JSON.parse(readFileSync(collected, "utf8")) as string[]) calls.add(path);
      expect(calls.size).toBeGreaterThan(30);
      // What a dialog and the search ask beyond what screens do.
      for (const query of [
        "state=failed",
        "tag.customer=7",
        "correlation_id=order-17",
        "code=code_8",
        "type=mail.kind3",
        "text=nowhere",
      ])
        calls.add(`/v1/jobs/count?${query}`);
      // What tabs share is asked for anew, too, by whoever has just acted.
      for (const path of [...calls]) calls.add(path.replace(/[?&]max_age=1s/, ""));
      const rows: { path: string; median: number; p95: number; most: number }[] = [];
      for (const path of [...calls].sort()) {
        const times: number[] = [];
        for (let round = 0; round < ROUNDS; round += 1) {
          const begun = performance.now();
          const response = await fetch(server.url + path);
          await response.arrayBuffer();
          times.push(performance.now() - begun);
          expect(response.status, path).toBe(200);
        }
        times.sort((one, other) => one - other);
        const at = (part: number) => times[Math.max(0, Math.ceil(part * times.length) - 1)]!;
        rows.push({ path, median: at(0.5), p95: at(0.95), most: budget(path) });
      }
      rows.sort((one, other) => other.p95 / other.most - one.p95 / one.most);
      const line = (row: (typeof rows)[number]) =>
        `${row.p95.toFixed(1).padStart(8)} ms of ${row.most}, median ${row.median.toFixed(1)}  ${row.path}`;
      console.log(`${kind}, ${JOBS} jobs, p95 of ${ROUNDS}:\n${rows.map(line).join("\n")}`);
      if (process.env.WINDLASS_QUIET) expect(rows.filter((row) => row.p95 > row.most).map(line)).toEqual([]);
    });

    test("counts and lists say how far they looked", async () => {
      const looked = async (query: string) =>
        (await server.call("GET", `/v1/jobs/count?${query}`)) as { count: number; looked: number; capped: boolean };
      // By an index: no more is looked at than matches.
      for (const query of ["tag.customer=7", "correlation_id=order-17"]) {
        const { count, looked: rows } = await looked(query);
        expect(count, query).toBeGreaterThan(0);
        expect(rows, query).toBe(count);
      }
      // From what the store keeps: nothing is looked at.
      expect((await looked("state=completed")).looked).toBe(0);
      const text = await looked("text=nowhere");
      expect(text.looked).toBeLessThanOrEqual(10_000);
      expect(text.capped).toBe(JOBS > 10_000);
      const page = (await server.call("GET", "/v1/jobs?text=nowhere&limit=50")) as {
        items: [];
        looked?: { jobs: number };
        next_cursor?: string;
      };
      expect(page.items).toEqual([]);
      expect(page.looked?.jobs).toBe(JOBS > 10_000 ? 10_000 : undefined);
    });
  });
}
