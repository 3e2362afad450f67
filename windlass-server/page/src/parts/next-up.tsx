// The jobs of a queue in the order in which they will be claimed.

import type { Job, Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { href } from "../router.ts";
import { JOB } from "./job-columns.tsx";
import { Empty, Loaded } from "./notice.tsx";
import { Table } from "./table.tsx";
import { When } from "./time.tsx";

export function NextUp({ queue, controlled }: { queue: string; controlled: boolean }) {
  const asked = new URLSearchParams({ state: "scheduled", queue, order: "claim", limit: "10", payloads: "false" });
  const page = useResource<Schemas["JobPage"]>(`/v1/jobs?${asked}`, 2000, "lanes");
  return (
    <section class="stack close">
      <h2>Next up</h2>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="The next ten, in the order in which they will be claimed"
            steady
            rows={data.items.map((job, place) => ({ ...job, place: place + 1 }))}
            id={(job: Job & { place: number }) => job.id}
            empty={<Empty says="Nothing waits to be claimed." />}
            columns={[
              { name: "Place", narrow: true, number: true, cell: (job) => job.place },
              { ...JOB, narrow: false },
              { name: "Priority", narrow: true, cell: (job) => job.effective_priority },
              { name: "Submitted", narrow: true, cell: (job) => <When at={job.created_at} /> },
            ]}
            foot={
              <>
                <a href={href(`/jobs?${new URLSearchParams({ state: "scheduled", queue })}`)}>All that are ready</a>
                {controlled ? <span class="push">Jobs of blocked keys are passed over.</span> : null}
              </>
            }
          />
        )}
      </Loaded>
    </section>
  );
}
