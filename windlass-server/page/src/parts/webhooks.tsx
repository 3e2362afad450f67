// Webhooks are jobs of a queue of their own. In their list stands where each goes, what was answered, and when it is tried
// again, in place of what other jobs show.

import { useEffect, useState } from "preact/hooks";
import { type Job, type Schemas, send } from "../api/client.ts";
import { href } from "../router.ts";
import { ENDED } from "../words.ts";
import type { Column } from "./table.tsx";
import { Text } from "./text.tsx";
import { When } from "./time.tsx";

export const WEBHOOKS = "windlass.webhooks";

/** The job that a delivery tells of, which its payload names; nothing where payloads are hidden. */
function toldOf(job: Job): string | undefined {
  const payload = job.payload as { job_id?: unknown } | null | undefined;
  return typeof payload?.job_id === "string" ? payload.job_id : undefined;
}

function hostOf(url: string | null | undefined): string {
  try {
    return url ? new URL(url).host : "";
  } catch {
    return "";
  }
}

/** The jobs that these deliveries tell of, by their ids: their addresses are where the deliveries go. */
function useTold(rows: Job[], wanted: boolean): Map<string, Job> {
  const [told, setTold] = useState(new Map<string, Job>());
  const missing = wanted ? rows.map(toldOf).filter((id) => id !== undefined && !told.has(id)) : [];
  useEffect(() => {
    if (missing.length === 0) return;
    let gone = false;
    send<Schemas["FoundJobs"]>("POST", "/v1/jobs/find?payloads=false", { ids: missing })
      .then(({ items }) => {
        if (gone) return;
        const found = items.filter((job) => job !== null).map((job) => [job!.id, job as Job] as const);
        setTold((before) => new Map([...before, ...found]));
      })
      .catch(() => {});
    return () => {
      gone = true;
    };
  }, [missing.join()]);
  return told;
}

/** The columns of a list of deliveries; none for other lists. */
export function useWebhookColumns(rows: Job[], wanted: boolean): Column<Job>[] {
  const told = useTold(rows, wanted);
  if (!wanted) return [];
  return [
    {
      name: "To",
      narrow: true,
      cell: (job) => <Text>{hostOf(told.get(toldOf(job) ?? "")?.callback_url)}</Text>,
    },
    {
      name: "Tells of",
      narrow: true,
      cell: (job) => {
        const id = toldOf(job);
        return id ? <a href={href(`/jobs/${id}`)}>{told.get(id)?.type ?? id.slice(0, 8)}</a> : null;
      },
    },
    {
      name: "Answer",
      narrow: true,
      cell: (job) => {
        const status = /^webhook_(\d{3})$/.exec(job.failure?.code ?? "")?.[1];
        if (job.state === "completed") return <span class="completed">delivered</span>;
        return status ? <span class="failed">HTTP {status}</span> : (job.failure?.code ?? null);
      },
    },
    {
      name: "Next try",
      narrow: true,
      cell: (job) => (ENDED.includes(job.state) || job.state === "running" ? null : <When at={job.run_at} />),
    },
  ];
}
