import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { read } = await load("parts/json.tsx");
const { pieces } = await load("parts/text.tsx");

test("numbers keep every digit", () => {
  const node = read('{"id": 123456789012345678901234567890, "x": [1.10, -0e5]}');
  assert.equal(node.members[0][1].text, "123456789012345678901234567890");
  assert.deepEqual(
    node.members[1][1].items.map((item) => item.text),
    ["1.10", "-0e5"],
  );
});

test("what JSON.parse takes is taken, and nothing else", () => {
  const good = ["{}", "[]", '""', "0", "true", "null", ' {"a" : [ {} , "\\u00e9\\n" ] } ', '{"a":1,"a":2}', "-1.5E+10"];
  const bad = ["", "{", "[1,]", '{"a"}', "01", "+1", "nul", "'a'", '"\n"', "[1 2]", "{} x", '{"a":1,}', "NaN", '"\\x"'];
  for (const text of good) {
    JSON.parse(text);
    assert.notEqual(read(text), null, text);
  }
  for (const text of bad) {
    assert.throws(() => JSON.parse(text), text);
    assert.equal(read(text), null, text);
  }
});

test("members of the same name both show", () => {
  assert.equal(read('{"a":1,"a":2}').members.length, 2);
});

test("what is too deep is left as text", () => {
  assert.equal(read("[".repeat(5000) + "]".repeat(5000)), null);
});

test("characters that steer the text are shown by number", () => {
  assert.deepEqual(pieces("a\u202eb\u0000"), [
    { plain: "a" },
    { strange: "U+202E" },
    { plain: "b" },
    { strange: "U+0000" },
  ]);
  assert.deepEqual(pieces("plain ünïcode 漢字\nline"), [{ plain: "plain ünïcode 漢字\nline" }]);
});
