// The flow control of a queue: what is typed, what is sent, and what it is in words and as a command.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { controlCommand, controlOf, controlWords, fieldsOf, limitWords, rateText, readCount, readRate } =
  await load("parts/flow-words.ts");

const FULL = {
  running: 5,
  rate: { count: 100, per: "1s", burst: 10 },
  types: { "mail.send": { running: 3 } },
  each_key: { running: 2, rate: { count: 10, per: "1m" } },
  fair: true,
  ageing: "30s",
  ordered: "halt",
};

test("a control goes into the form and comes back as it was", () => {
  assert.deepEqual(controlOf(fieldsOf(FULL), FULL), FULL);
  assert.deepEqual(controlOf(fieldsOf(undefined)), {});
});

test("what the form does not show of a type or a key stays", () => {
  const hidden = { types: { a: { running: 3, rate: { count: 1, per: "1s" } } }, each_key: { running: 2, weight: 7 } };
  assert.deepEqual(controlOf(fieldsOf(hidden), hidden), hidden);
});

test("what cannot be read is not sent", () => {
  const fields = fieldsOf(FULL);
  for (const [name, text] of [
    ["running", "0"],
    ["running", "many"],
    ["rate", "100"],
    ["rate", "fast/s"],
    ["types", "mail.send"],
    ["types", "=5"],
    ["ageing", "soon"],
    ["keyRunning", "-1"],
  ])
    assert.equal(controlOf({ ...fields, [name]: text }, FULL), null, `${name}: ${text}`);
  assert.equal(controlOf({ ...fieldsOf(undefined), burst: "5" }), null, "a burst without a rate");
});

test("rates are read and written in one way", () => {
  for (const text of ["100/s", "10/min", "500/h", "3/d", "3/5m"]) assert.equal(rateText(readRate(text)), text);
  assert.equal(readRate(""), undefined);
  assert.equal(readRate("0/s"), null);
  assert.equal(readCount(" 12 "), 12);
});

test("a control is told in words and as the command that sets it", () => {
  assert.equal(
    controlCommand("mail", FULL),
    "windlass queues control mail --running 5 --rate 100/s --burst 10 --type-running mail.send=3 --each-key-running 2 --each-key-rate 10/min --fair --ageing 30s --ordered",
  );
  const words = Object.fromEntries(controlWords(FULL));
  assert.equal(words["At once"], "5 jobs");
  assert.equal(words.Starts, "100 a second, up to 10 at one moment");
  assert.equal(words["Each key"], "2 at once, 10 a minute");
  assert.equal(limitWords({}), "no limit");
});
