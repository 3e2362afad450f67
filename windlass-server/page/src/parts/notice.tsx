// What went wrong, in the server's words; and what would be here, where there is nothing.

import type { ComponentChildren } from "preact";
import type { Refused } from "../api/client.ts";
import type { Resource } from "../api/live.ts";
import { Command } from "./copy.tsx";

export function Problem({ problem, retry }: { problem: Refused; retry?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <strong>{problem.title}</strong>
      {problem.detail ? <span>{problem.detail}</span> : null}
      {problem.requestId ? <span class="small muted">request {problem.requestId}</span> : null}
      {retry ? (
        <button type="button" class="button tiny push" onClick={retry}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

export function Empty({ says, children, command }: { says: string; children?: ComponentChildren; command?: string }) {
  return (
    <div class="empty">
      <p>{says}</p>
      {children}
      {command ? <Command line={command} /> : null}
    </div>
  );
}

/** What a resource gives, or why there is nothing yet. */
export function Loaded<T>({ of, children }: { of: Resource<T>; children: (data: T) => ComponentChildren }) {
  if (of.data !== undefined) {
    return (
      <div class={of.stale ? "stack stale" : "stack"}>
        {of.problem && of.problem.status !== 0 ? <Problem problem={of.problem} retry={of.reload} /> : null}
        {children(of.data)}
      </div>
    );
  }
  if (of.problem) return <Problem problem={of.problem} retry={of.reload} />;
  return <p class="muted">Loading…</p>;
}
