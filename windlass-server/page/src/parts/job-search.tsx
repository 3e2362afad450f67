// How jobs are found: the box for conditions, and the groups of states.

import { useEffect, useState } from "preact/hooks";
import type { Schemas, State } from "../api/client.ts";
import { CONDITIONS, conditions, isId, read, write } from "../api/filter.ts";
import { useResource } from "../api/live.ts";
import { go, href, query, withQuery } from "../router.ts";
import { DEAD, number, stateWord } from "../words.ts";

const EVERY_MS = 2000;

/** The groups above the list. */
const TABS: [word: string, states: State[]][] = [
  ["All", []],
  ["Waiting", ["pending", "delayed", "scheduled", "retrying"]],
  ["Running", ["running"]],
  ["Dead", DEAD],
  ["Completed", ["completed"]],
  ["Cancelled", ["cancelled"]],
];

/** The box in which conditions are typed. */
export function Search() {
  const asked = query.value;
  const found = asked.get("find");
  const [text, setText] = useState(found ?? write(asked));
  const [problems, setProblems] = useState<string[]>([]);
  const list = "conditions";
  const submit = (given: string) => {
    if (isId(given)) {
      go(`/jobs/${given.trim()}`, true);
      return;
    }
    const { query: wanted, problems: wrong } = read(given);
    setProblems(wrong);
    if (wrong.length > 0) return;
    const limit = asked.get("limit");
    if (limit) wanted.set("limit", limit);
    const search = wanted.toString();
    go(search ? `/jobs?${search}` : "/jobs", asked.has("find"));
  };
  useEffect(() => {
    if (found === null) setText(write(asked));
    else submit(found);
  }, [asked.toString()]);
  return (
    <search class="stack">
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          submit(text);
        }}
      >
        <div class="field" style={{ flex: "1 1 240px" }}>
          <input
            type="search"
            aria-label="Conditions"
            placeholder="state:failed queue:mail type:email.send tag.customer:7 after:1h"
            autocomplete="off"
            spellcheck={false}
            list={list}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <datalist id={list}>
            {CONDITIONS.map(([word, , meaning]) => (
              <option key={word} value={`${text.replace(/\S*$/, "")}${word}:`} label={meaning} />
            ))}
          </datalist>
        </div>
        <button type="submit" class="button">
          Find
        </button>
        {conditions(asked).toString() ? (
          <a class="button quiet" href={href("/jobs")}>
            Clear
          </a>
        ) : null}
      </form>
      {problems.map((problem) => (
        <p key={problem} class="notice warn" role="alert">
          {problem}
        </p>
      ))}
    </search>
  );
}

/** The groups, with counts where the store keeps them: for all jobs, or those of one queue. */
export function Tabs() {
  const asked = conditions(query.value);
  const state = asked.get("state") ?? "";
  asked.delete("state");
  const queue = asked.get("queue");
  const counts = [...asked.keys()].every((name) => name === "queue");
  const totals = useResource<Schemas["Totals"]>(counts && !queue ? "/v1/stats" : null, EVERY_MS);
  const one = useResource<Schemas["Queue"]>(
    counts && queue ? `/v1/queues/${encodeURIComponent(queue)}` : null,
    EVERY_MS,
  );
  const states = queue ? one.data?.states : totals.data?.states;
  return (
    <nav class="tabs" aria-label="States">
      {TABS.map(([word, of]) => (
        <a
          key={word}
          href={href(withQuery({ state: of.join(",") || null, cursor: null, find: null }))}
          aria-current={state === of.join(",") ? "true" : undefined}
        >
          {word}
          {states && counts ? (
            <span class="count">
              {number((of.length ? of : (Object.keys(states) as State[])).reduce((sum, name) => sum + states[name], 0))}
            </span>
          ) : null}
        </a>
      ))}
      {state && !TABS.some(([, of]) => of.join(",") === state) ? (
        <a href={href(withQuery({}))} aria-current="true">
          {state
            .split(",")
            .map((name) => stateWord[name as State] ?? name)
            .join(", ")}
        </a>
      ) : null}
    </nav>
  );
}
