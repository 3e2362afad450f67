// The critical path of a workflow: the chain of steps that decided, or will decide, when it ends.

import type { Schemas } from "../api/client.ts";

type Graph = Pick<Schemas["Graph"], "nodes" | "edges">;
type Node = Schemas["Node"] & { started_at?: string | null; ended_at?: string | null };

/** When a step ended; one that has not ended comes after all that have. */
function end(node: Node): number {
  return node.ended_at ? Date.parse(node.ended_at) : Number.POSITIVE_INFINITY;
}

/**
 * The path from its first step to its last: from the step that ends last, back to that of its dependencies which ended
 * last, and so on. Where two end alike, the one with more steps before it counts.
 */
export function critical(graph: Graph): Set<string> {
  const nodes = new Map(graph.nodes.map((node) => [node.id, node as Node]));
  const before = new Map<string, string[]>();
  const isNeeded = new Set<string>();
  for (const { from, to } of graph.edges) {
    if (!nodes.has(from) || !nodes.has(to)) continue;
    before.set(to, [...(before.get(to) ?? []), from]);
    isNeeded.add(from);
  }
  const depths = new Map<string, number>();
  const depth = (id: string): number => {
    const known = depths.get(id);
    if (known !== undefined) return known;
    depths.set(id, 0);
    const found = 1 + Math.max(0, ...(before.get(id) ?? []).map(depth));
    depths.set(id, found);
    return found;
  };
  const latest = (ids: string[]): string | undefined =>
    ids.reduce<string | undefined>((best, id) => {
      if (best === undefined) return id;
      const [one, other] = [end(nodes.get(id)!), end(nodes.get(best)!)];
      return one > other || (one === other && depth(id) > depth(best)) ? id : best;
    }, undefined);
  const path = new Set<string>();
  let at = latest([...nodes.keys()].filter((id) => !isNeeded.has(id)));
  while (at !== undefined && !path.has(at)) {
    path.add(at);
    at = latest(before.get(at) ?? []);
  }
  return path;
}
