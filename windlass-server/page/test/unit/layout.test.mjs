import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { draw, layersOf, FOLD_FROM } = await load("parts/layout.ts");

const node = (id, type = "step", state = "completed") => ({ id, type, queue: "q", state });
const edge = (from, to) => ({ from, to, kind: "after" });

test("each step stands behind all that it waits for", () => {
  const lines = [edge("a", "b"), edge("b", "c"), edge("a", "c"), edge("c", "d")];
  assert.deepEqual([...layersOf(["a", "b", "c", "d"], lines).values()], [0, 1, 2, 3]);
});

test("a circle, which the store never has, does not hang", () => {
  assert.equal(layersOf(["a", "b"], [edge("a", "b"), edge("b", "a")]).size, 2);
});

test("steps do not share a place, and edges go forward", () => {
  const nodes = ["a", "b", "c", "d", "e", "f"].map((id) => node(id));
  const edges = [edge("a", "d"), edge("b", "e"), edge("c", "f"), edge("a", "f"), edge("d", "e")];
  const drawn = draw({ nodes, edges });
  const places = new Set(drawn.boxes.map((box) => `${box.layer} ${box.place}`));
  assert.equal(places.size, 6);
  const layer = new Map(drawn.boxes.map((box) => [box.id, box.layer]));
  for (const line of drawn.lines) assert.ok(layer.get(line.from) < layer.get(line.to));
});

test("like siblings are folded once there are many, and none is lost", () => {
  const many = Array.from({ length: 1000 }, (_, at) => node(`p${at}`, "page", at % 2 ? "completed" : "running"));
  const graph = { nodes: [...many, node("end", "publish", "pending")], edges: many.map(({ id }) => edge(id, "end")) };
  assert.ok(graph.nodes.length > FOLD_FROM);
  const begun = performance.now();
  const drawn = draw(graph);
  assert.ok(performance.now() - begun < 1000);
  assert.equal(drawn.boxes.length, 2);
  const pages = drawn.boxes.find((box) => box.type === "page");
  assert.deepEqual(pages.states, { completed: 500, running: 500 });
  assert.equal(pages.jobs.length, 1000);
});

test("a few steps are all drawn, siblings too", () => {
  const many = Array.from({ length: 10 }, (_, at) => node(`p${at}`, "page"));
  const drawn = draw({ nodes: [...many, node("end")], edges: many.map(({ id }) => edge(id, "end")) });
  assert.equal(drawn.boxes.length, 11);
  assert.equal(drawn.tallest, 10);
});
