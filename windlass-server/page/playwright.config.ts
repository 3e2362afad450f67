// Browser tests against the real binary, on the distribution's own Chromium. Nothing is downloaded.

import { existsSync } from "node:fs";
import { defineConfig } from "@playwright/test";

const found = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const isRoot = process.getuid?.() === 0;

export default defineConfig({
  testDir: "test/browser",
  outputDir: "test-results",
  fullyParallel: false,
  // Some files mostly wait: for samples, for a gap, for a heap that might grow.
  workers: 3,
  // What looks and acts, once more on the other store, where a server is named; `scale` is on both by itself. The names are those of stores.
  projects: [
    { name: "sqlite" },
    ...(process.env.WINDLASS_TEST_POSTGRES
      ? [{ name: "postgres", testMatch: /(truth|planted|features|screens|security|flow)\.spec\.ts$/ }]
      : []),
  ],
  // A test that passes only at its second try is reported as flaky, and is a test to mend.
  retries: process.env.CI ? 2 : 0,
  // Tests wait for what they want to see, however long a busy machine takes; these only end those that never will.
  timeout: 180_000,
  expect: { timeout: 45_000 },
  reporter: [[process.env.CI ? "line" : "list"]],
  use: {
    browserName: "chromium",
    viewport: { width: 1280, height: 800 },
    launchOptions: {
      executablePath: process.env.WINDLASS_CHROMIUM ?? found,
      // Chromium refuses its sandbox to root.
      chromiumSandbox: !isRoot,
      args: [
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
});
