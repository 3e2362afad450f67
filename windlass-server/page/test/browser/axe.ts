// axe, put into the page by the debugger, so that the page's own policy need not be loosened for it.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { expect, type Page } from "@playwright/test";

const source = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Violation {
  id: string;
  nodes: { target: string[]; failureSummary?: string }[];
}

const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** Fails on whatever axe finds, in both themes. */
export async function accessible(page: Page, what: string) {
  for (const theme of ["light", "dark"] as const) {
    // Colours on their way from one theme to the other are nobody's.
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    await page.evaluate(source);
    const violations = await page.evaluate(
      async (tags) =>
        // biome-ignore lint/suspicious/noExplicitAny: axe puts itself on the window
        (await (window as any).axe.run(document, { runOnly: { type: "tag", values: tags } })).violations as Violation[],
      TAGS,
    );
    const told = violations.map(
      (one) => `${one.id}: ${one.nodes.map((node) => `${node.target.join(" ")} ${node.failureSummary}`).join("\n  ")}`,
    );
    expect(told, `${what}, ${theme}`).toEqual([]);
  }
}

/** Fails when the page scrolls sideways, once it has settled. */
export async function fits(page: Page, what: string) {
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  await expect.poll(wide, { message: `${what} is wider than its window` }).toBeLessThanOrEqual(0);
}
