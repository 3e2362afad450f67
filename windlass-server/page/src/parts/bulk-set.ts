// The jobs that an act on many will take, frozen before anybody is asked.
//
// Jobs that were picked are named by id. All that match are frozen by the store's time of the look: the act takes only jobs
// that have not changed since, so one that comes into these states later, or leaves and comes back, is not swept along.

import { useEffect, useState } from "preact/hooks";
import { ask, type Job, type Refused, type Schemas, type State, send } from "../api/client.ts";
import { filter } from "../api/filter.ts";
import { STATES } from "../words.ts";

export type Action = Schemas["Action"];
export type Found = Pick<Job, "id" | "type" | "state">;

/** Which states an act takes, by the rules of the state machine. The server decides; this is for the preview. */
export const TAKES: Record<Action, State[]> = {
  requeue: ["failed", "dead_letter"],
  cancel: ["pending", "delayed", "scheduled", "running", "retrying"],
  dead_letter: ["pending", "delayed", "scheduled", "running", "retrying", "failed"],
  delete: ["completed", "failed", "dead_letter", "cancelled"],
  edit: ["pending", "delayed", "scheduled", "running", "retrying"],
};

/** What a look found: how many the act would take, some of them, and how many it would leave alone. */
export interface Look {
  state: "looking" | "ready";
  takes: number;
  leaves: number;
  /** Whether `leaves` is only the least number. */
  leavesMore: boolean;
  sample: Found[];
  /** What the operation names: ids, or conditions with the moment that freezes them. */
  target: Pick<Schemas["NewOperation"], "ids" | "filter">;
}

const SAMPLE_MAX = 20;

function pickedLook(jobs: Found[], action: Action): Look {
  const takes = jobs.filter((job) => TAKES[action].includes(job.state));
  return {
    state: "ready",
    takes: takes.length,
    leaves: jobs.length - takes.length,
    leavesMore: false,
    sample: takes.slice(0, SAMPLE_MAX),
    target: { ids: takes.map((job) => job.id) },
  };
}

/** The states that the conditions name, or all, that an act does not take. */
function leftAlone(query: URLSearchParams, action: Action): State[] {
  const named = (query.get("state") ?? "").split(",").filter(Boolean) as State[];
  return (named.length > 0 ? named : STATES).filter((state) => !TAKES[action].includes(state));
}

function takenOf(query: URLSearchParams, action: Action): State[] {
  const named = (query.get("state") ?? "").split(",").filter(Boolean) as State[];
  return (named.length > 0 ? named : STATES).filter((state) => TAKES[action].includes(state));
}

async function count(query: URLSearchParams, states: State[], stop: AbortSignal): Promise<Schemas["Count"]> {
  const asked = new URLSearchParams(query);
  asked.set("state", states.join(","));
  // Somebody is about to act on them: it may take as long as a count may.
  asked.set("looked", "100000");
  return ask(`/v1/jobs/count?${asked}`, { signal: stop });
}

/** Follows the operation until it has ended, telling each state it is seen in. */
export async function follow(id: string, stop: AbortSignal, seen: (status: Schemas["OperationStatus"]) => void) {
  for (;;) {
    const status = await ask<Schemas["OperationStatus"]>(`/v1/operations/${id}?wait=500ms`, { signal: stop });
    seen(status);
    if (status.state !== "running") return status;
  }
}

async function look(query: URLSearchParams, action: Action, stop: AbortSignal, tell: (look: Look) => void) {
  const { now } = await ask<{ now: string }>("/v1/time", { signal: stop });
  const frozen = new URLSearchParams(query);
  frozen.set("changed_before", now);
  const states = takenOf(query, action);
  const target = { filter: { ...filter(frozen), state: states } };
  const found: Look = { state: "looking", takes: 0, leaves: 0, leavesMore: false, sample: [], target };
  if (states.length > 0) {
    const first = new URLSearchParams(frozen);
    first.set("state", states.join(","));
    first.set("limit", String(SAMPLE_MAX));
    first.set("payloads", "false");
    found.sample = (await ask<Schemas["JobPage"]>(`/v1/jobs?${first}`, { signal: stop })).items;
    tell({ ...found });
    const edit = action === "edit" ? { edit: {} } : {};
    const body = { action, ...edit, ...target, dry_run: true };
    const started = await send<Schemas["OperationStatus"]>("POST", "/v1/operations", body);
    const ended = await follow(started.id, stop, (status) => tell({ ...found, takes: status.changed }));
    found.takes = ended.changed;
  }
  const others = leftAlone(query, action);
  if (others.length > 0) {
    const left = await count(frozen, others, stop);
    found.leaves = left.count;
    found.leavesMore = left.capped;
  }
  tell({ ...found, state: "ready" });
}

/** A look at the jobs, anew for each act. */
export function useLook(action: Action, jobs?: Found[], query?: URLSearchParams) {
  const [found, setFound] = useState<Look>();
  const [problem, setProblem] = useState<Refused>();
  useEffect(() => {
    setFound(undefined);
    setProblem(undefined);
    if (!query) return;
    const stop = new AbortController();
    const tell = (seen: Look) => !stop.signal.aborted && setFound(seen);
    look(query, action, stop.signal, tell).catch((error) => !stop.signal.aborted && setProblem(error as Refused));
    return () => stop.abort();
  }, [action]);
  return { found: jobs ? pickedLook(jobs, action) : found, problem };
}
