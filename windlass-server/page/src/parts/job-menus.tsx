// Above a list of jobs: views that were saved, columns to choose, the conditions as a form, and export.

import { useState } from "preact/hooks";
import { CONDITIONS, conditions, write } from "../api/filter.ts";
import { go, href, query } from "../router.ts";
import { STATES, stateWord } from "../words.ts";
import { CopyButton } from "./copy.tsx";
import { tell } from "./dialog.tsx";
import { exportJobs } from "./export.tsx";
import { CHOICE } from "./job-columns.tsx";
import { hidden, removeView, saveView, showColumn, views } from "./kept.ts";
import { useKnown } from "./known.ts";
import { Menu } from "./menu.tsx";

/** The query of a view: what is looked for, not where one is in the list. */
function viewOf(asked: URLSearchParams): string {
  const kept = new URLSearchParams(asked);
  kept.delete("cursor");
  kept.delete("find");
  return kept.toString();
}

function Views() {
  const search = viewOf(query.value);
  const [name, setName] = useState("");
  const save = (event: Event) => {
    event.preventDefault();
    const word = name.trim() || write(query.value) || "All jobs";
    saveView({ name: word, search });
    setName("");
    tell(`“${word}” is kept in this browser`);
  };
  return (
    <Menu word="Views">
      {views.value.length === 0 ? <p class="small muted">None is saved in this browser.</p> : null}
      <ul class="plain-list">
        {views.value.map((view) => (
          <li key={view.name} class="row">
            <a href={href(`/jobs${view.search ? `?${view.search}` : ""}`)}>{view.name}</a>
            <button
              type="button"
              class="button quiet tiny push"
              aria-label={`Forget ${view.name}`}
              onClick={() => removeView(view.name)}
            >
              Forget
            </button>
          </li>
        ))}
      </ul>
      <form class="stack close" onSubmit={save}>
        <label class="field">
          <span>Save what is shown, as</span>
          <input
            value={name}
            placeholder={write(query.value) || "All jobs"}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <div class="row">
          <button type="submit" class="button tiny primary">
            Save
          </button>
          <span class="small muted">or as a link</span>
          <CopyButton text={window.location.href} what="link" />
        </div>
      </form>
    </Menu>
  );
}

function Columns() {
  return (
    <Menu word="Columns">
      <fieldset class="plain-list">
        <legend class="small muted">Shown in this browser</legend>
        {CHOICE.map(({ name }) => (
          <label key={name} class="check">
            <input
              type="checkbox"
              checked={!hidden.value.includes(name)}
              onChange={(event) => showColumn(name, event.currentTarget.checked)}
            />
            {name}
          </label>
        ))}
      </fieldset>
    </Menu>
  );
}

/** The conditions as fields, for those who do not type grammar. */
function Form() {
  const known = useKnown();
  const asked = conditions(query.value);
  const [states, setStates] = useState(new Set((asked.get("state") ?? "").split(",").filter(Boolean)));
  const [values, setValues] = useState<Record<string, string>>(() => Object.fromEntries(asked));
  const submit = (event: Event) => {
    event.preventDefault();
    const next = new URLSearchParams();
    if (states.size > 0) next.set("state", STATES.filter((state) => states.has(state)).join(","));
    for (const [name, value] of Object.entries(values))
      if (name !== "state" && value.trim()) next.set(name, value.trim());
    go(`/jobs?find=${encodeURIComponent(write(next))}`);
  };
  return (
    <form class="stack close" onSubmit={submit}>
      <fieldset class="states">
        <legend class="small muted">State</legend>
        {STATES.map((state) => (
          <label key={state} class="check">
            <input
              type="checkbox"
              checked={states.has(state)}
              onChange={(event) => {
                const next = new Set(states);
                if (event.currentTarget.checked) next.add(state);
                else next.delete(state);
                setStates(next);
              }}
            />
            {stateWord[state]}
          </label>
        ))}
      </fieldset>
      <div class="grid-2 close">
        {CONDITIONS.filter(([word]) => word !== "state").map(([word, parameter, meaning]) => (
          <label key={word} class="field">
            <span class="small">{word}</span>
            <input
              title={meaning}
              list={known[word] ? `form-${word}` : undefined}
              value={values[parameter] ?? ""}
              autocomplete="off"
              onInput={(event) => setValues({ ...values, [parameter]: event.currentTarget.value })}
            />
            {known[word] ? (
              <datalist id={`form-${word}`}>
                {known[word].map((name) => (
                  <option key={name} value={name} />
                ))}
              </datalist>
            ) : null}
          </label>
        ))}
      </div>
      <button type="submit" class="button primary">
        Find
      </button>
    </form>
  );
}

export function JobMenus() {
  return (
    <div class="actions">
      <Menu word="Form">
        <Form />
      </Menu>
      <Views />
      <Columns />
      <button type="button" class="button" onClick={() => exportJobs(conditions(query.value))}>
        Export
      </button>
    </div>
  );
}
