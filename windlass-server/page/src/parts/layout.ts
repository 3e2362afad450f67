// Where the steps of a workflow stand: each in a layer behind all that it waits for, ordered so that few edges cross.
// Like siblings are folded into one once there are many.

import type { Schemas, State } from "../api/client.ts";

type Graph = Pick<Schemas["Graph"], "nodes" | "edges">;

export interface Box {
  id: string;
  type: string;
  queue: string;
  states: Partial<Record<State, number>>;
  /** The jobs that it stands for. */
  jobs: string[];
  layer: number;
  place: number;
}

export interface Line {
  from: string;
  to: string;
}

export interface Drawn {
  boxes: Box[];
  lines: Line[];
  layers: number;
  tallest: number;
  /** Whether some boxes stand for several steps. */
  folded: boolean;
}

/** Beyond so many steps, like ones are folded. */
export const FOLD_FROM = 200;
const SWEEPS = 4;

/** How far each step stands behind the first: one more than the furthest of those it waits for. */
export function layersOf(ids: string[], lines: Line[]): Map<string, number> {
  const waits = new Map(ids.map((id) => [id, 0]));
  const next = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const { from, to } of lines) {
    if (!waits.has(from) || !waits.has(to)) continue;
    waits.set(to, waits.get(to)! + 1);
    next.get(from)!.push(to);
  }
  const layers = new Map(ids.map((id) => [id, 0]));
  const ready = ids.filter((id) => waits.get(id) === 0);
  for (let at = 0; at < ready.length; at += 1) {
    const id = ready[at]!;
    for (const to of next.get(id)!) {
      layers.set(to, Math.max(layers.get(to)!, layers.get(id)! + 1));
      waits.set(to, waits.get(to)! - 1);
      if (waits.get(to) === 0) ready.push(to);
    }
  }
  return layers;
}

/** Adds to the list under a key; copying the list each time would make a thousand siblings cost a million steps. */
function push<T>(lists: Map<string, T[]>, key: string, value: T) {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/** Steps of one type with the same neighbours are alike. */
function fold(graph: Graph): { groups: Map<string, Schemas["Node"][]>; of: Map<string, string> } {
  const before = new Map<string, string[]>();
  const after = new Map<string, string[]>();
  for (const edge of graph.edges) {
    push(before, edge.to, edge.from);
    push(after, edge.from, edge.to);
  }
  const folds = graph.nodes.length > FOLD_FROM;
  const groups = new Map<string, Schemas["Node"][]>();
  const of = new Map<string, string>();
  const keys = new Map<string, string>();
  for (const node of graph.nodes) {
    const near = [before.get(node.id) ?? [], after.get(node.id) ?? []].map((ids) => ids.sort().join());
    const key = folds ? `${node.type} ${node.queue} ${node.spawned_by ?? ""} ${near.join(" ")}` : node.id;
    const group = keys.get(key) ?? node.id;
    keys.set(key, group);
    of.set(node.id, group);
    push(groups, group, node);
  }
  return { groups, of };
}

function linesBetween(graph: Graph, of: Map<string, string>): Line[] {
  const seen = new Set<string>();
  const lines: Line[] = [];
  const add = (from: string | undefined, to: string | undefined) => {
    if (!from || !to || from === to || seen.has(`${from} ${to}`)) return;
    seen.add(`${from} ${to}`);
    lines.push({ from, to });
  };
  for (const edge of graph.edges) add(of.get(edge.from), of.get(edge.to));
  for (const node of graph.nodes) if (node.spawned_by) add(of.get(node.spawned_by), of.get(node.id));
  return lines;
}

/** Puts each step near the middle of those it is joined to, in a few sweeps to and fro. */
function order(boxes: Box[], lines: Line[], layers: number) {
  const place = new Map(boxes.map((box) => [box.id, box.place]));
  const near = { ahead: new Map<string, string[]>(), behind: new Map<string, string[]>() };
  for (const { from, to } of lines) {
    push(near.ahead, from, to);
    push(near.behind, to, from);
  }
  const joined = (id: string, ahead: boolean) =>
    (near[ahead ? "ahead" : "behind"].get(id) ?? []).map((other) => place.get(other)!);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const ahead = sweep % 2 === 1;
    for (let step = 0; step < layers; step += 1) {
      const layer = ahead ? layers - 1 - step : step;
      const own = boxes.filter((box) => box.layer === layer);
      const middle = new Map(
        own.map((box) => {
          const near = joined(box.id, ahead);
          return [box.id, near.length ? near.reduce((sum, at) => sum + at, 0) / near.length : box.place];
        }),
      );
      own.sort((one, other) => middle.get(one.id)! - middle.get(other.id)! || one.place - other.place);
      own.forEach((box, at) => {
        box.place = at;
        place.set(box.id, at);
      });
    }
  }
}

export function draw(graph: Graph): Drawn {
  const { groups, of } = fold(graph);
  const lines = linesBetween(graph, of);
  const layerOf = layersOf([...groups.keys()], lines);
  const counts = new Map<number, number>();
  const boxes = [...groups].map(([id, nodes]): Box => {
    const layer = layerOf.get(id) ?? 0;
    const place = counts.get(layer) ?? 0;
    counts.set(layer, place + 1);
    const states: Box["states"] = {};
    for (const node of nodes) states[node.state] = (states[node.state] ?? 0) + 1;
    return {
      id,
      type: nodes[0]!.type,
      queue: nodes[0]!.queue,
      states,
      jobs: nodes.map((node) => node.id),
      layer,
      place,
    };
  });
  const layers = Math.max(0, ...counts.keys()) + 1;
  order(boxes, lines, layers);
  const folded = boxes.length < graph.nodes.length;
  return { boxes, lines, layers, tallest: Math.max(1, ...counts.values()), folded };
}
