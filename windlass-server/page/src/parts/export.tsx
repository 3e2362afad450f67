// Saves the jobs that match as JSON lines: read page by page, kept in memory, and given to the browser as one file.

import { useEffect, useRef, useState } from "preact/hooks";
import { answer, type Refused } from "../api/client.ts";
import { flags, write } from "../api/filter.ts";
import { me } from "../api/me.ts";
import { bytes, number } from "../words.ts";
import { curl, Terminal } from "./copy.tsx";
import { closeDialog, Dialog, dialog, tell } from "./dialog.tsx";
import { Problem } from "./notice.tsx";

/** More than that is work for the command line. */
const JOBS_MAX = 100_000;
const BYTES_MAX = 256 * 1024 * 1024;
const PAGE = 500;

export function exportJobs(query: URLSearchParams) {
  dialog.value = <Export query={query} />;
}

export function save(parts: BlobPart[], name: string, type: string) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/**
 * The items of a page as lines, without parsing them: what is between the brackets of `items` goes out as it came, so
 * that a number of twenty digits keeps all of them. Strings are passed over, since they may hold brackets.
 */
export function lines(page: string): string[] {
  const start = page.indexOf("[", page.indexOf('"items"'));
  const found: string[] = [];
  let [depth, from] = [0, -1];
  for (let at = start; at < page.length; at += 1) {
    const sign = page[at];
    if (sign === '"') {
      for (at += 1; page[at] !== '"'; at += 1) if (page[at] === "\\") at += 1;
    } else if (sign === "{" || sign === "[") {
      depth += 1;
      if (depth === 2) from = at;
    } else if (sign === "}" || sign === "]") {
      depth -= 1;
      if (depth === 1) found.push(page.slice(from, at + 1));
      if (depth === 0) break;
    }
  }
  return found;
}

function asked(query: URLSearchParams, cursor?: string): URLSearchParams {
  const all = new URLSearchParams(query);
  all.set("limit", String(PAGE));
  if (cursor) all.set("cursor", cursor);
  return all;
}

interface Progress {
  jobs: number;
  size: number;
  end: "" | "all" | "limit";
}

function Export({ query }: { query: URLSearchParams }) {
  const [progress, setProgress] = useState<Progress>({ jobs: 0, size: 0, end: "" });
  const [problem, setProblem] = useState<Refused>();
  const [going, setGoing] = useState(false);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const run = async () => {
    setGoing(true);
    const parts: string[] = [];
    let [jobs, size] = [0, 0];
    let cursor: string | undefined;
    do {
      const path = `/v1/jobs?${asked(query, cursor)}`;
      const text: string = await (await answer(path, { signal: stop.current.signal })).text();
      const found = lines(text);
      const part = found.map((line) => `${line}\n`).join("");
      parts.push(part);
      jobs += found.length;
      size += part.length;
      cursor = (JSON.parse(text) as { next_cursor?: string | null }).next_cursor ?? undefined;
      setProgress({ jobs, size, end: "" });
    } while (cursor && jobs < JOBS_MAX && size < BYTES_MAX);
    setProgress({ jobs, size, end: cursor ? "limit" : "all" });
    save(parts, "windlass-jobs.jsonl", "application/jsonl");
    tell(`${number(jobs)} jobs were saved`);
  };
  const begin = () => {
    run().catch((error) => {
      if (!stop.current.signal.aborted) setProblem(error as Refused);
    });
  };
  const words = write(query);
  return (
    <Dialog title="Export as JSON lines">
      <p>
        {words ? <code>{words}</code> : "All jobs"}, in the order of the list, up to {number(JOBS_MAX)}: one line each,
        as the API gives it.
        {me.value?.payloads_hidden ? " Payloads are hidden from you and are not in it." : ""}
      </p>
      {going ? (
        <p aria-live="polite">
          {number(progress.jobs)} jobs, {bytes(progress.size)}
          {progress.end === "limit" ? ". There are more: narrow the conditions, or use the command line." : ""}
          {progress.end === "all" ? ". That is all of them." : ""}
        </p>
      ) : null}
      <Terminal
        lines={[
          `windlass jobs list --limit ${JOBS_MAX} -o jsonl${flags(query)}`,
          curl("GET", `/v1/jobs?${asked(query)}`),
        ]}
      />
      {problem ? <Problem problem={problem} /> : null}
      <div class="actions">
        <button type="button" class="button" onClick={closeDialog}>
          {progress.end ? "Close" : "Cancel"}
        </button>
        {going ? null : (
          <button type="submit" class="button primary" onClick={begin}>
            Export
          </button>
        )}
      </div>
    </Dialog>
  );
}
