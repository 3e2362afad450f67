// A range of time, typed.

import { useState } from "preact/hooks";
import { go, query, withQuery } from "../router.ts";
import { inUtc } from "./time.tsx";

/** A moment as a field for dates holds it, in the zone in which times are shown. */
export function fieldOf(at: string | null): string {
  if (!at) return "";
  const time = new Date(at);
  if (inUtc.value) return time.toISOString().slice(0, 19);
  const local = new Date(time.getTime() - time.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}

function momentOf(field: string): string | null {
  if (field === "") return null;
  const time = Date.parse(inUtc.value ? `${field}Z` : field);
  return Number.isNaN(time) ? null : new Date(time).toISOString();
}

export function RangeForm() {
  const [from, setFrom] = useState(fieldOf(query.value.get("from")));
  const [to, setTo] = useState(fieldOf(query.value.get("to")));
  const submit = (event: Event) => {
    event.preventDefault();
    go(withQuery({ from: momentOf(from), to: momentOf(to), last: null }));
  };
  return (
    <form class="stack close" onSubmit={submit}>
      <label class="field">
        <span>From</span>
        <input
          type="datetime-local"
          step="1"
          required
          value={from}
          onInput={(event) => setFrom(event.currentTarget.value)}
        />
      </label>
      <label class="field">
        <span>To (empty: now)</span>
        <input type="datetime-local" step="1" value={to} onInput={(event) => setTo(event.currentTarget.value)} />
      </label>
      <p class="small muted">
        {inUtc.value ? "In UTC." : "In the zone of this browser."} At most 14 days. A drag over a chart, or Shift and
        arrow keys and then Enter, does the same.
      </p>
      <button type="submit" class="button primary">
        Show
      </button>
    </form>
  );
}
