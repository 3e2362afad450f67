import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { ticks, path, ground, csv, within, short } = await load("parts/chart-scale.ts");

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

test("the ground under a line has its gaps, and none under a single point", () => {
  const same = (value) => value;
  const under = ground([1, 2, null, 3, null, 4, 5], same, (value) => 10 - value);
  assert.equal(under, "M0.0 10.0L0.0 9.0L1.0 8.0L1.0 10.0ZM5.0 10.0L5.0 6.0L6.0 5.0L6.0 10.0Z");
  assert.equal(ground([null, 1, null], same, same), "");
});

test("a chart as CSV has a column for each line, and gaps stay empty", () => {
  const text = csv(
    [0, 60_000],
    [
      { name: "in", values: [1, null] },
      { name: 'a "b", c', values: [0.5, 2] },
    ],
  );
  assert.equal(text, 'time,in,"a ""b"", c"\n1970-01-01T00:00:00.000Z,1,0.5\n1970-01-01T00:01:00.000Z,,2\n');
  assert.match(csv([0], [{ name: "=cmd()", values: [1] }]), /^time,'=cmd\(\)/);
});

test("a range holds the points between its ends, and all where it holds none", () => {
  assert.deepEqual(within([0, 10, 20, 30], 5, 25), [1, 2]);
  assert.deepEqual(within([0, 10, 20, 30], 11, 12), [0, 3]);
});

test("an axis stays narrow up to a million", () => {
  assert.deepEqual([0, 0.5, 999, 9999, 30_000, 1_000_000].map(short), ["0", "0.5", "999", "9,999", "30k", "1M"]);
});
