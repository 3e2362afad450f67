// How jobs are found: the box for conditions, and the groups of states.

import { useEffect, useState } from "preact/hooks";
import type { State } from "../api/client.ts";
import { CONDITIONS, conditions, isId, read, write } from "../api/filter.ts";
import { sumOf, useLanes } from "../api/lanes.ts";
import { go, href, query, withQuery } from "../router.ts";
import { DEAD, number, STATES, stateWord, WAITING } from "../words.ts";
import { type Known, useKnown } from "./known.ts";

const EVERY_MS = 2000;
const COMPLETIONS_MAX = 20;

/** The groups above the list. */
const TABS: [word: string, states: State[]][] = [
  ["All", []],
  ["Waiting", WAITING],
  ["Running", ["running"]],
  ["Dead", DEAD],
  ["Completed", ["completed"]],
  ["Cancelled", ["cancelled"]],
];

/** What may stand next in the box: names of conditions, and after such a name the values that the server knows. */
export function completions(text: string, known: Known): [value: string, meaning: string][] {
  const before = text.replace(/\S*$/, "");
  const word = text.slice(before.length);
  const [, name, begun = ""] = /^([a-z-]+):(\S*)$/.exec(word) ?? [];
  if (name && known[name])
    return known[name]
      .filter((value) => value.startsWith(begun))
      .slice(0, COMPLETIONS_MAX)
      .map((value) => [`${before}${name}:${/[\s"\\]/.test(value) ? JSON.stringify(value) : value} `, name]);
  return CONDITIONS.filter(([own]) => own.startsWith(word)).map(([own, , meaning]) => [`${before}${own}:`, meaning]);
}

/** The box in which conditions are typed. */
export function Search() {
  const asked = query.value;
  const found = asked.get("find");
  const [text, setText] = useState(found ?? write(asked));
  const [problems, setProblems] = useState<string[]>([]);
  const list = "conditions";
  const known = useKnown();
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
            {completions(text, known).map(([value, meaning]) => (
              <option key={value} value={value} label={meaning} />
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
  // Counts stand where the store keeps them: for all jobs, and those of a queue, a type, or both.
  const counts = [...asked.keys()].every((name) => name === "queue" || name === "type");
  const lanes = useLanes(EVERY_MS);
  const sum = lanes.data ? sumOf(lanes.data.items, { queue: asked.get("queue"), type: asked.get("type") }) : undefined;
  const states = sum?.states;
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
              {number((of.length ? of : STATES).reduce((all, name) => all + states[name], 0))}
              {sum.atLeast && of.some((name) => name === "running" || name === "delayed" || name === "retrying")
                ? "+"
                : ""}
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
