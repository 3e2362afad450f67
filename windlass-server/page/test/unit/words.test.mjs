import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { span, about, rate, bytes, counted } = await load("words.ts");
const { bands, widths } = await load("parts/strip.tsx");

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
  const job = { created_at: time(0), completed_at: time(31), state: "completed" };
  const attempts = [
    { number: 1, started_at: time(1), ended_at: time(2), outcome: "failed" },
    { number: 2, started_at: time(30), ended_at: time(31), outcome: "completed" },
  ];
  const found = bands(job, attempts, at(100));
  assert.deepEqual(
    found.map((band) => [band.state, band.from - at(0), band.to - at(0)]),
    [
      ["scheduled", 0, 1000],
      ["running", 1000, 2000],
      ["retrying", 2000, 30_000],
      ["running", 30_000, 31_000],
      ["completed", 31_000, 31_000],
    ],
  );
  const room = widths(found);
  assert.deepEqual(
    room.map((one) => one.folded),
    [false, false, true, false, false],
  );
});

test("a job that waits is shown as waiting until now", () => {
  const job = { created_at: time(0), state: "scheduled" };
  assert.deepEqual(
    bands(job, [], at(9)).map((band) => [band.state, band.to]),
    [["scheduled", at(9)]],
  );
});
