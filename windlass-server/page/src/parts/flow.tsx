// The flow control of a queue: what it says, how its keys stand, and what can be done about them.

import { Fragment } from "preact";
import { part, type Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { href, query, withQuery } from "../router.ts";
import { number } from "../words.ts";
import { clearControl, hold, lift, limitKey, resumeKey, setControl } from "./flow-form.tsx";
import { controlWords, KEY_STATE, limitWords } from "./flow-words.ts";
import { JobLink } from "./job-facts.tsx";
import { Empty, Loaded } from "./notice.tsx";
import { type Column, Table } from "./table.tsx";
import { Text } from "./text.tsx";
import { When } from "./time.tsx";

type Key = Schemas["FlowKey"];

interface Of {
  queue: Schemas["Queue"];
  reload: () => void;
}

/** What the queue has been told, in words. */
export function FlowFacts({ queue, reload }: Of) {
  const of = { queue: queue.name, reload };
  const control = queue.control?.control;
  return (
    <section class="card" aria-label="Flow control">
      <h2>Flow control</h2>
      {control && queue.control ? (
        <dl class="facts">
          {controlWords(control).map(([name, says]) => (
            <Fragment key={name}>
              <dt>
                <Text>{name}</Text>
              </dt>
              <dd>{says}</dd>
            </Fragment>
          ))}
          <dt>Set</dt>
          <dd>
            <When at={queue.control.updated_at} />
            {control.from_code ? ", by a program" : ""}
          </dd>
        </dl>
      ) : (
        <p class="muted">None: what is ready is claimed as soon as a worker has room.</p>
      )}
      {mayOperate() ? (
        <div class="row">
          <button type="button" class="button tiny" onClick={() => setControl(of, queue.control ?? undefined)}>
            {control ? "Change…" : "Set limits…"}
          </button>
          {control ? (
            <>
              <button type="button" class="button tiny" onClick={() => hold(of)}>
                Hold…
              </button>
              <button type="button" class="button tiny" onClick={() => lift(of)}>
                Lift…
              </button>
              <button type="button" class="button tiny risky" onClick={() => clearControl(of)}>
                End…
              </button>
            </>
          ) : null}
        </div>
      ) : null}
    </section>
  );
}

function KeyState({ of }: { of: Key }) {
  const open = of.state === "open";
  return (
    <span class={`two-lines ${of.state === "halted" ? "danger" : ""}`}>
      <span class={open ? "muted" : ""}>{KEY_STATE[of.state]}</span>
      {of.until ? (
        <span class="small muted">
          until <When at={of.until} />
        </span>
      ) : null}
      {of.job ? (
        <span class="small">
          <JobLink id={of.job} />
        </span>
      ) : null}
    </span>
  );
}

function columns(of: { queue: string; reload: () => void }): Column<Key>[] {
  const all: Column<Key>[] = [
    { name: "Key", lead: true, cell: (key) => <Text>{key.key}</Text> },
    { name: "Waiting", narrow: true, number: true, cell: (key) => number(key.waiting) },
    {
      name: "Running",
      narrow: true,
      number: true,
      cell: (key) => (key.limit.running ? `${key.running} of ${number(key.limit.running)}` : number(key.running)),
    },
    { name: "Limits", cell: (key) => `${limitWords(key.limit)}${key.own_limit ? ", its own" : ""}` },
    { name: "State", cell: (key) => <KeyState of={key} /> },
  ];
  if (mayOperate())
    all.push({
      name: "Acts",
      narrow: true,
      cell: (key) => (
        <span class="row">
          <button type="button" class="button tiny" onClick={() => limitKey(of, key)} aria-label={`Limit ${key.key}`}>
            Limit…
          </button>
          {key.state === "held" || key.state === "halted" ? (
            <button
              type="button"
              class="button tiny"
              onClick={() => resumeKey(of, key.key, key.state === "halted")}
              aria-label={`Resume ${key.key}`}
            >
              Resume…
            </button>
          ) : (
            <button type="button" class="button tiny" onClick={() => hold(of, key.key)} aria-label={`Hold ${key.key}`}>
              Hold…
            </button>
          )}
        </span>
      ),
    });
  return all;
}

/** The keys of a controlled queue; those of which nothing may start can be had alone. */
export function FlowKeys({ queue, reload }: Of) {
  const blocked = query.value.get("keys") === "blocked";
  const asked = new URLSearchParams({ limit: "50" });
  if (blocked) asked.set("blocked", "true");
  const cursor = query.value.get("cursor");
  if (cursor) asked.set("cursor", cursor);
  const path = `/v1/queues/${part(queue.name)}/keys?${asked}`;
  const page = useResource<Schemas["FlowKeyPage"]>(queue.control ? path : null, 2000, "lanes");
  if (!queue.control) return null;
  const of = {
    queue: queue.name,
    reload: () => {
      reload();
      page.reload();
    },
  };
  const tab = (name: string, keys: string | null) => (
    <a href={href(withQuery({ keys, cursor: null }))} aria-current={blocked === (keys !== null) ? "page" : undefined}>
      {name}
    </a>
  );
  return (
    <section class="stack close">
      <h2>Keys</h2>
      <nav class="tabs" aria-label="Which keys">
        {tab("All", null)}
        {tab("Blocked or halted", "blocked")}
      </nav>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="Keys of the queue, and how each stands"
            rows={data.items}
            id={(key) => key.key}
            empty={
              <Empty
                says={blocked ? "No key is blocked." : "No key has jobs or limits of its own now."}
                {...(blocked ? {} : { command: `windlass enqueue hello --queue ${queue.name} --flow-key acme` })}
              />
            }
            columns={columns(of)}
            foot={data.next_cursor ? <a href={href(withQuery({ cursor: data.next_cursor }))}>More keys</a> : undefined}
          />
        )}
      </Loaded>
    </section>
  );
}
