// Names that the server knows, for completion: queues, types, schedules, workers.

import type { Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { STATES } from "../words.ts";

/** The names that may stand behind a word of the search box. */
export type Known = Record<string, string[]>;

export function useKnown(): Known {
  const queues = useResource<Schemas["QueuePage"]>("/v1/queues");
  const schedules = useResource<Schemas["SchedulePage"]>("/v1/schedules?limit=200");
  const workers = useResource<Schemas["Workers"]>("/v1/workers");
  const served = workers.data?.items ?? [];
  return {
    state: STATES,
    queue: (queues.data?.items ?? []).map((queue) => queue.name),
    type: [...new Set(served.flatMap((worker) => worker.types ?? []))].sort(),
    schedule: (schedules.data?.items ?? []).map((one) => one.schedule.name ?? ""),
    worker: served.map((worker) => worker.id),
  };
}
