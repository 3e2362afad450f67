// Names that the server knows, for completion: queues, types, schedules, workers.

import type { Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { STATES } from "../words.ts";

/** The names that may stand behind a word of the search box. */
export type Known = Record<string, string[]>;

function unique(names: string[]): string[] {
  return [...new Set(names)].sort();
}

export function useKnown(): Known {
  const lanes = useResource<Schemas["Lanes"]>("/v1/lanes");
  const schedules = useResource<Schemas["SchedulePage"]>("/v1/schedules?limit=200");
  const workers = useResource<Schemas["Workers"]>("/v1/workers");
  const served = workers.data?.items ?? [];
  return {
    state: STATES,
    queue: unique((lanes.data?.items ?? []).map((lane) => lane.queue)),
    type: unique([
      ...(lanes.data?.items ?? []).map((lane) => lane.type),
      ...served.flatMap((worker) => worker.types ?? []),
    ]),
    schedule: (schedules.data?.items ?? []).map((one) => one.schedule.name ?? ""),
    worker: served.map((worker) => worker.id),
  };
}
