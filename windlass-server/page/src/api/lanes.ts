// The numbers of queues and types, added up: one answer for every figure, tab and table that counts jobs.

import { STATES } from "../words.ts";
import type { Schemas } from "./client.ts";
import { useResource } from "./live.ts";

type Lane = Schemas["Lane"];

export interface Sum {
  states: Schemas["States"];
  accepted: number;
  ended: number;
  /** Attempts that failed or were lost, whether they are tried again or not. */
  failing: number;
  /** Whether counting stopped somewhere: some numbers are then the least there are. */
  atLeast: boolean;
}

const NONE = Object.fromEntries(STATES.map((state) => [state, 0])) as Schemas["States"];

/** All lanes of a queue, of a type, of both, or all there are. */
export function sumOf(lanes: Lane[], of: { queue?: string | null; type?: string | null } = {}): Sum {
  const all: Sum = { states: { ...NONE }, accepted: 0, ended: 0, failing: 0, atLeast: false };
  for (const lane of lanes) {
    if ((of.queue && lane.queue !== of.queue) || (of.type && lane.type !== of.type)) continue;
    for (const state of STATES) all.states[state] += lane.states[state];
    const { completed, failed, dead_letter, cancelled } = lane.ended;
    all.accepted += lane.accepted;
    all.ended += completed + failed + dead_letter + cancelled;
    all.failing += lane.retried + lane.lost + failed + dead_letter;
    all.atLeast ||= lane.at_least ?? false;
  }
  return all;
}

export function useLanes(every = 2000) {
  return useResource<Schemas["Lanes"]>("/v1/lanes", every, "lanes");
}
