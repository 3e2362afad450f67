import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { read, write, filter, isId, moment, CONDITIONS } = await load("api/filter.ts");

test("words become conditions", () => {
  const { query, problems } = read(
    'state:failed,dead_letter queue:mail type:"email send" tag.customer:7 code:smtp_down',
  );
  assert.deepEqual(problems, []);
  assert.deepEqual(Object.fromEntries(query), {
    state: "failed,dead_letter",
    queue: "mail",
    type: "email send",
    "tag.customer": "7",
    code: "smtp_down",
  });
  assert.deepEqual(filter(query), {
    state: ["failed", "dead_letter"],
    queue: "mail",
    type: "email send",
    code: "smtp_down",
    tags: { customer: "7" },
  });
});

test("what is not understood is said", () => {
  for (const bad of ["state:dead", "colour:red", "queue:", "after:yesterday"]) {
    const { problems } = read(bad);
    assert.equal(problems.length, 1, bad);
  }
});

test("words alone are text, and stand beside conditions", () => {
  const { query, problems } = read('queue:mail no such "mail box" text:550');
  assert.deepEqual(problems, []);
  assert.deepEqual(Object.fromEntries(query), { queue: "mail", text: "550 no such mail box" });
  assert.deepEqual(Object.fromEntries(read(write(query)).query), Object.fromEntries(query));
});

test("a span is a moment of the past", () => {
  const hour = Date.now() - Date.parse(moment("1h"));
  assert.ok(Math.abs(hour - 3_600_000) < 2000);
  assert.equal(moment("2027-03-28T02:30:00Z"), "2027-03-28T02:30:00.000Z");
  assert.equal(moment("soon"), null);
});

test("an id is told from words", () => {
  assert.ok(isId(" 019a92f1-2f6b-7cc0-8000-5f0a9d7a1b2c "));
  assert.ok(!isId("019a92f1"));
});

/** A small generator of random numbers, so that a failing case can be had again. */
function random(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state % below;
  };
}

test("what is written in the box reads as the same conditions, whatever the values are", () => {
  const draw = random(7);
  const signs = ["a", "Z", "0", " ", '"', "\\", ":", ".", ",", "ü", "漢", "'", "%", "&", "=", "+", "#", "\t"];
  const word = () => Array.from({ length: 1 + draw(8) }, () => signs[draw(signs.length)]).join("");
  const free = CONDITIONS.map(([, parameter]) => parameter).filter((name) => !/state|_after|_before/.test(name));
  for (let round = 0; round < 2000; round += 1) {
    const query = new URLSearchParams();
    for (const name of free) if (draw(3) === 0) query.set(name, word());
    if (draw(2) === 0) query.set("state", "failed,retrying");
    if (draw(3) === 0) query.set("created_after", "2027-03-28T02:30:00.000Z");
    if (draw(3) === 0) query.set(`tag.${word()}`, word());
    const text = write(query);
    const again = read(text);
    assert.deepEqual(again.problems, [], text);
    assert.deepEqual(Object.fromEntries(again.query), Object.fromEntries(query), text);
  }
});
