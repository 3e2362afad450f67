// The points that the page must meet, as docs/page.md lists them: every test that it names is there.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../../", import.meta.url));

/** All text of the sources under a folder. */
function sources(folder, end) {
  return readdirSync(root + folder, { recursive: true })
    .filter((name) => name.endsWith(end))
    .map((name) => readFileSync(`${root}${folder}/${name}`, "utf8"))
    .join("\n");
}

test("every test that docs/page.md names is there", () => {
  const page = readFileSync(`${root}docs/page.md`, "utf8");
  const table = page.split("## What holds it")[1].split("\n## ")[0];
  const rows = table.split("\n").filter((line) => /^\| \d+ \|/.test(line));
  assert.deepEqual(
    rows.map((row) => Number(row.split("|")[1])),
    Array.from({ length: 15 }, (_, at) => at + 1),
  );
  const browser = sources("windlass-server/page/test/browser", ".spec.ts");
  const rust = ["windlass/src", "windlass-server/src", "windlass-server/tests"]
    .map((folder) => sources(folder, ".rs"))
    .join("\n");
  for (const row of rows) {
    const names = [...row.split("|")[3].matchAll(/`([^`]+)`/g)].map(([, name]) => name);
    const tests = names.filter((name) => !/^(node |scripts\/)/.test(name));
    assert.ok(tests.length > 0, row);
    for (const name of tests) {
      const found = /^\w+$/.test(name) ? rust.includes(`fn ${name}(`) : browser.includes(name);
      assert.ok(found, `no test is called ${name}`);
    }
  }
});
