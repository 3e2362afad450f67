import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { ticks, path } = await load("parts/chart.tsx");

test("the scale is round and holds the largest value", () => {
  for (const most of [0, 0.3, 1, 3, 7, 29.5, 30, 101, 999, 30_123, 1_000_000]) {
    const marks = ticks(most);
    assert.ok(marks.at(-1) >= most, `${most}: ${marks}`);
    assert.ok(marks.length >= 2 && marks.length <= 6, `${most}: ${marks}`);
    assert.ok(marks.every(Number.isInteger), `${most}: ${marks}`);
  }
});

test("a line is interrupted where nothing is known", () => {
  const same = (value) => value;
  assert.equal(path([1, 2, null, 3], same, same), "M0.0 1.0L1.0 2.0M3.0 3.0");
  assert.equal(path([null, null], same, same), "");
});
