// The rows of a list of jobs: they stay where they are, change in place, and can be picked.

import { useEffect, useRef, useState } from "preact/hooks";
import { type Job, type Schemas, send } from "../api/client.ts";

/** The rows in view: those that came first stay, in the freshest form that is known. */
export function useRows(at: string, page: Schemas["JobPage"] | undefined) {
  const view = useRef<{ at: string; rows: Job[] }>({ at: "", rows: [] });
  const [, redraw] = useState(0);
  if (view.current.at !== at) view.current = { at: "", rows: [] };
  if (page && view.current.at === "") view.current = { at, rows: page.items };
  const fresh = new Map(page?.items.map((job) => [job.id, job]));
  view.current.rows = view.current.rows.map((job) => fresh.get(job.id) ?? job);
  const missing = view.current.rows.filter((job) => !fresh.has(job.id)).map((job) => job.id);
  useEffect(() => {
    if (!page || missing.length === 0) return;
    let gone = false;
    send<Schemas["FoundJobs"]>("POST", "/v1/jobs/find?payloads=false", { ids: missing })
      .then(({ items }) => {
        if (gone) return;
        const found = new Map(items.filter((job) => job !== null).map((job) => [job!.id, job as Job]));
        view.current.rows = view.current.rows.map((job) => found.get(job.id) ?? job);
        redraw((count) => count + 1);
      })
      .catch(() => {});
    return () => {
      gone = true;
    };
  }, [page]);
  const shown = new Set(view.current.rows.map((job) => job.id));
  const added = page && view.current.at !== "" ? page.items.filter((job) => !shown.has(job.id)).length : 0;
  const show = () => {
    view.current = { at: "", rows: [] };
    redraw((count) => count + 1);
  };
  return { rows: view.current.rows, added, show };
}

export function usePicks(rows: Job[]) {
  const [picked, setPicked] = useState<Set<string>>(new Set());
  const last = useRef("");
  const pick = (id: string, range: boolean) => {
    const ids = rows.map((job) => job.id);
    const [from, to] = [ids.indexOf(last.current), ids.indexOf(id)];
    last.current = id;
    // Keys may come faster than the screen is drawn, so each goes by what the one before has left.
    setPicked((before) => {
      const next = new Set(before);
      if (range && from >= 0) for (const one of ids.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(one);
      else if (!next.delete(id)) next.add(id);
      return next;
    });
  };
  const pickAll = (all: boolean) => setPicked(all ? new Set(rows.map((job) => job.id)) : new Set());
  return { picked, pick, pickAll };
}
