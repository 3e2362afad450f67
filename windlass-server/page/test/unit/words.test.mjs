import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { span, about, rate, bytes, counted, spaced } = await load("words.ts");
const { bandsOf, statesOf, told, widths } = await load("parts/history.tsx");

test("spans are told in their one or two largest units", () => {
  for (const [given, expected] of [
    [0, "0 ms"],
    [85, "85 ms"],
    [1500, "1.5 s"],
    [42_000, "42 s"],
    [60_000, "1 min"],
    [61_000, "1 min 1 s"],
    [3_600_000, "1 h"],
    [100_000_000, "1 d 3 h"],
    [-5, "0 ms"],
  ])
    assert.equal(span(given), expected);
  assert.equal(about(-185_000), "3 min");
});

test("lengths of time of the API are written like all others", () => {
  for (const [given, expected] of [
    ["30m", "30 min"],
    ["5m", "5 min"],
    ["1h 30m", "1 h 30 min"],
    ["1h30m", "1 h 30 min"],
    ["500ms", "500 ms"],
    ["7d", "7 d"],
    ["1.5s", "1.5 s"],
    ["forever", "forever"],
    [null, "–"],
  ])
    assert.equal(spaced(given), expected);
});

test("small and large numbers stay legible", () => {
  assert.equal(rate(0), "0");
  assert.equal(rate(0.04), "<0.1");
  assert.equal(rate(29.7), "30");
  assert.equal(rate(30_123.4), "30,123");
  assert.equal(bytes(1536), "1.5 KiB");
  assert.equal(counted(1, "job"), "1 job");
  assert.equal(counted(1200, "job"), "1,200 jobs");
});

const time = (seconds) => new Date(1_800_000_000_000 + seconds * 1000).toISOString();
const at = (seconds) => 1_800_000_000_000 + seconds * 1000;

test("the life of a job is told without gaps", () => {
  const items = [
    { at: time(0), what: "submitted", state: "scheduled" },
    { at: time(1), what: "started", state: "running", attempt: 1, worker: "w", lease_version: 1 },
    { at: time(2), what: "failed", state: "retrying", attempt: 1 },
    { at: time(3), what: "edit", by: "ada" },
    { at: time(30), what: "started", state: "running", attempt: 2 },
    { at: time(31), what: "completed", state: "completed", attempt: 2 },
  ];
  const found = bandsOf(items, at(100));
  assert.deepEqual(
    found.map((band) => [band.state, band.from - at(0), band.to - at(0)]),
    [
      ["scheduled", 0, 1000],
      ["running", 1000, 2000],
      ["retrying", 2000, 3000],
      ["retrying", 3000, 30_000],
      ["running", 30_000, 31_000],
      ["completed", 31_000, 31_000],
    ],
  );
  assert.deepEqual(
    widths(found).map((one) => one.folded),
    [false, false, false, true, false, false],
  );
  assert.deepEqual(statesOf(items).slice(2, 4), ["retrying", "retrying"]);
  assert.equal(told(items[1]), "claimed, try 1, on w, lease 1");
  assert.equal(told(items[3]), "edit, by ada");
});

test("a job that waits is shown as waiting until now", () => {
  const items = [{ at: time(0), what: "submitted", state: "scheduled" }];
  assert.deepEqual(
    bandsOf(items, at(9)).map((band) => [band.state, band.to]),
    [["scheduled", at(9)]],
  );
});
