// A job's payload, result or checkpoint: the exact text where it is JSON, type and size and first bytes where it is not.

import { useEffect, useState } from "preact/hooks";
import { answer, base, type Job, type Refused } from "../api/client.ts";
import { me } from "../api/me.ts";
import { bytes, counted } from "../words.ts";
import { CopyButton } from "./copy.tsx";
import { Json } from "./json.tsx";
import { matches, read } from "./json-read.ts";
import { Empty, Problem } from "./notice.tsx";

/** Larger ones are only to be downloaded. */
const SHOWN_MAX = 256 * 1024;
const HEX_MAX = 512;

interface Content {
  size: number;
  type: string;
  text?: string;
  hex?: string;
}

function hex(data: Uint8Array): string {
  const rows: string[] = [];
  for (let at = 0; at < Math.min(data.length, HEX_MAX); at += 16) {
    const row = [...data.slice(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const plain = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${plain}`);
  }
  return rows.join("\n");
}

async function load(path: string, stop: AbortSignal): Promise<Content | null> {
  const response = await answer(path, { signal: stop });
  if (response.status === 204) return null;
  const data = new Uint8Array(await response.arrayBuffer());
  const isJson = response.headers.get("content-type")?.startsWith("application/json") ?? false;
  const type =
    response.headers.get("windlass-content-type") ?? (isJson ? "application/json" : "application/octet-stream");
  const content: Content = { size: data.length, type };
  if (isJson && data.length <= SHOWN_MAX) content.text = new TextDecoder().decode(data);
  if (!isJson) content.hex = hex(data);
  return content;
}

interface ShownProps {
  content: Content;
  part: string;
  path: string;
  name: string;
}

function Shown({ content, part, path, name }: ShownProps) {
  const [wanted, setWanted] = useState("");
  const { text } = content;
  const node = text === undefined ? null : read(text);
  const found = wanted && node ? matches(node, wanted) : 0;
  return (
    <div class="stack close">
      <div class="row small muted tools">
        {text !== undefined ? (
          <input
            type="search"
            aria-label={`Search the ${part}`}
            placeholder="Search"
            value={wanted}
            onInput={(event) => setWanted(event.currentTarget.value)}
          />
        ) : null}
        {wanted && node ? <span aria-live="polite">{counted(found, "match", "matches")}</span> : null}
        <span class="push">
          <code>{content.type}</code> {bytes(content.size)}
        </span>
        {text !== undefined ? <CopyButton text={text} what={part} /> : null}
        <a class="button quiet tiny" href={base + path} download={`${name}${text !== undefined ? ".json" : ".bin"}`}>
          Download
        </a>
      </div>
      {text !== undefined ? <Json text={text} wanted={wanted} /> : null}
      {content.hex !== undefined ? (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys
        <section class="json hex" tabIndex={0} aria-label="The first bytes">
          {content.hex}
        </section>
      ) : null}
      {text === undefined && content.hex === undefined ? <Empty says="Too large to show; download it." /> : null}
    </div>
  );
}

export function Contents({ job, part }: { job: Job; part: "payload" | "result" | "checkpoint" }) {
  const [content, setContent] = useState<Content | null>();
  const [problem, setProblem] = useState<Refused>();
  const path = `/v1/jobs/${job.id}/${part}`;
  const wanted = !(part === "result" && job.state !== "completed") && !me.value?.payloads_hidden;
  useEffect(() => {
    if (!wanted) return;
    const stop = new AbortController();
    load(path, stop.signal)
      .then(setContent)
      .catch((error) => !stop.signal.aborted && setProblem(error as Refused));
    return () => stop.abort();
  }, [path, wanted, part === "checkpoint" ? job.updated_at : ""]);
  if (me.value?.payloads_hidden) return <Empty says={`The ${part} is hidden from you.`} />;
  if (!wanted) return <Empty says="There is a result when the job has completed." />;
  if (problem) return <Problem problem={problem} />;
  if (content === undefined) return <p class="muted">Loading…</p>;
  if (content === null)
    return <Empty says={part === "result" ? "It completed without a result." : "It has saved no checkpoint."} />;
  return <Shown content={content} part={part} path={path} name={`${job.id}.${part}`} />;
}
