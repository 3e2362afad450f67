// Workflows: how far each is.

import { useState } from "preact/hooks";
import type { Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { Empty, Loaded } from "../parts/notice.tsx";
import { Pager } from "../parts/pager.tsx";
import { StateBar, sum, WorkflowBadge } from "../parts/state.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/time.tsx";
import { go, href, query, withQuery } from "../router.ts";
import { ENDED, number } from "../words.ts";

const WORKFLOW_TABS: [state: string, word: string][] = [
  ["", "All"],
  ["running", "Running"],
  ["completed", "Completed"],
  ["failed", "Failed"],
  ["cancelled", "Cancelled"],
];

export function WorkflowsScreen() {
  const asked = query.value;
  const sent = new URLSearchParams({ limit: "50" });
  for (const name of ["name", "state", "cursor"]) {
    const value = asked.get(name);
    if (value) sent.set(name, value);
  }
  const [name, setName] = useState(asked.get("name") ?? "");
  const page = useResource<Schemas["WorkflowPage"]>(`/v1/workflows?${sent}`, 3000, "lanes");
  return (
    <>
      <div class="head">
        <h1>Workflows</h1>
        <form
          class="row filter push"
          onSubmit={(event) => {
            event.preventDefault();
            go(withQuery({ name: name.trim() || null, cursor: null }));
          }}
        >
          <input
            type="search"
            aria-label="Name"
            placeholder="With this in its name"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <button type="submit" class="button">
            Find
          </button>
        </form>
      </div>
      <nav class="tabs" aria-label="States">
        {WORKFLOW_TABS.map(([state, word]) => (
          <a
            key={state}
            href={href(withQuery({ state: state || null, cursor: null }))}
            aria-current={(asked.get("state") ?? "") === state ? "true" : undefined}
          >
            {word}
          </a>
        ))}
      </nav>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="Workflows, newest first"
            steady
            rows={data.items}
            id={(flow) => flow.id}
            empty={
              <Empty
                says="No workflows yet. A workflow is a graph of jobs that is submitted as one."
                command="windlass workflows --help"
              />
            }
            columns={[
              { name: "State", lead: true, narrow: true, cell: (flow) => <WorkflowBadge state={flow.state} /> },
              {
                name: "Workflow",
                lead: true,
                cell: (flow) => (
                  <a href={href(`/workflows/${flow.id}`)}>
                    <Text>{flow.name}</Text>
                  </a>
                ),
              },
              { name: "Steps", cell: (flow) => <StateBar states={flow.states} /> },
              {
                name: "Done",
                narrow: true,
                number: true,
                cell: (flow) =>
                  `${number(sum(flow.states, ENDED) + flow.pruned)} of ${number(sum(flow.states) + flow.pruned)}`,
              },
              { name: "Begun", narrow: true, sort: "descending", cell: (flow) => <When at={flow.created_at} /> },
            ]}
            foot={<Pager next={data.next_cursor} />}
          />
        )}
      </Loaded>
    </>
  );
}
