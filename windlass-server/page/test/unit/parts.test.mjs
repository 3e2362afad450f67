import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { fit, choose } = await load("parts/palette.tsx");
const { lines } = await load("parts/export.tsx");
const { compare } = await load("parts/compare.ts");
const { critical } = await load("parts/critical.ts");
const { withView } = await load("parts/kept.ts");
const { flags } = await load("api/filter.ts");
const { matches, read } = await load("parts/json-read.ts");

test("the palette prefers what begins with the letters, then what holds them, then what has them in order", () => {
  const word = (text) => ({ kind: "Queue", word: text, act: () => {} });
  assert.ok(fit("ma", "mail") < fit("ma", "email.send"));
  assert.ok(fit("ma", "email.send") < fit("ma", "media"));
  assert.equal(fit("mx", "mail"), -1);
  const found = choose([word("media"), word("email.send"), word("mail"), word("billing")], "ma");
  assert.deepEqual(
    found.map((entry) => entry.word),
    ["mail", "email.send", "media"],
  );
});

test("exported lines are the items as they came, every digit and bracket", () => {
  const items = [
    '{"id":"1","payload":{"n":123456789012345678901,"s":"a \\"]}, {[ \\\\"}}',
    '{"id":"2","tags":{},"list":[[1,2],[{}]]}',
  ];
  assert.deepEqual(lines(`{"items":[${items.join(", ")}],"next_cursor":"x"}`), items);
  assert.deepEqual(lines('{"items":[]}'), []);
});

test("two texts are compared line by line", () => {
  const told = compare("a\nb\nc", "a\nx\nc\nd").map(({ kind, text }) => `${kind} ${text}`);
  assert.deepEqual(told, ["same a", "old b", "new x", "same c", "new d"]);
});

const node = (id, ended) => ({ id, type: "t", queue: "q", state: "completed", ended_at: ended });
const edge = (from, to) => ({ from, to, kind: "after" });

test("the critical path goes back along what ended last", () => {
  const nodes = [
    node("a", "2027-01-01T00:00:01Z"),
    node("b", "2027-01-01T00:00:09Z"),
    node("c", "2027-01-01T00:00:10Z"),
  ];
  const path = critical({ nodes, edges: [edge("a", "c"), edge("b", "c")] });
  assert.deepEqual([...path], ["c", "b"]);
});

test("the critical path of what has not run is its longest chain", () => {
  const nodes = ["a", "b", "c", "d", "e"].map((id) => node(id));
  const path = critical({ nodes, edges: [edge("a", "b"), edge("b", "c"), edge("d", "c"), edge("c", "e")] });
  assert.deepEqual([...path].reverse(), ["a", "b", "c", "e"]);
});

test("a view of the same name replaces the one before", () => {
  const first = withView([], { name: "dead", search: "state=failed" });
  assert.deepEqual(withView(first, { name: "dead", search: "state=dead_letter" }), [
    { name: "dead", search: "state=dead_letter" },
  ]);
});

test("conditions become options of the command line, quoted", () => {
  const query = new URLSearchParams({
    state: "failed,dead_letter",
    queue: "a b",
    "tag.who": "it's",
    correlation_id: "7",
  });
  assert.equal(
    flags(query),
    " --state failed --state dead_letter --queue 'a b' --tag 'who=it'\\''s' --correlation-id 7",
  );
});

test("a payload is searched in its names and values", () => {
  const payload = read('{"Customer": {"id": 42, "name": "Ada"}, "items": ["customer", 142]}');
  assert.equal(matches(payload, "customer"), 2);
  assert.equal(matches(payload, "42"), 2);
  assert.equal(matches(payload, "nobody"), 0);
});
