// A job's state as icon, word and colour; and the states of many as a bar.

import type { Schemas, State } from "../api/client.ts";
import { number, STATES, stateMeaning, stateWord } from "../words.ts";
import { StateIcon } from "./icon.tsx";

export function StateBadge({ state, large }: { state: State; large?: boolean }) {
  return (
    <span class={`badge ${state}${large ? " large" : ""}`} title={stateMeaning[state]}>
      <StateIcon state={state} />
      {stateWord[state]}
    </span>
  );
}

const WORKFLOW: Record<Schemas["WorkflowState"], State> = {
  running: "running",
  completed: "completed",
  failed: "failed",
  cancelled: "cancelled",
};

export function WorkflowBadge({ state, large }: { state: Schemas["WorkflowState"]; large?: boolean }) {
  return <StateBadge state={WORKFLOW[state]} large={large ?? false} />;
}

/** How the states of a set of jobs share it. */
export function StateBar({ states }: { states: Schemas["States"] }) {
  const present = STATES.filter((state) => states[state] > 0);
  const words = present.map((state) => `${number(states[state])} ${stateWord[state].toLowerCase()}`).join(", ");
  return (
    <span class="bar" role="img" aria-label={words || "none"} title={words}>
      {present.map((state) => (
        <span key={state} class={`bar-piece ${state}`} style={{ flexGrow: String(states[state]) }} />
      ))}
    </span>
  );
}

export function sum(states: Schemas["States"], of: State[] = STATES): number {
  return of.reduce((total, state) => total + states[state], 0);
}
