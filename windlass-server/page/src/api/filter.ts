// The search box: words such as `state:dead_letter queue:mail`, the query of the page's URL, and the API's filter are
// three forms of the same conditions.

import { quoted as inShell, STATES } from "../words.ts";
import type { Schemas, State } from "./client.ts";
import { now } from "./live.ts";

/** The conditions, as the query of the page and of `/v1/jobs` names them, with the word for each in the search box. */
export const CONDITIONS: [word: string, parameter: string, meaning: string][] = [
  ["state", "state", "one of the nine states; several with commas"],
  ["queue", "queue", "the queue"],
  ["type", "type", "the job's type"],
  ["code", "code", "the code of its failure"],
  ["error", "fingerprint", "the group of errors that it died of"],
  ["text", "text", "text in its payload, failure or tags; words alone mean the same"],
  ["key", "key", "its idempotency key"],
  ["worker", "worker", "the worker that runs it"],
  ["workflow", "workflow", "the id of its workflow"],
  ["schedule", "schedule", "the schedule that fired it"],
  ["correlation", "correlation_id", "its correlation id"],
  ["after", "created_after", "submitted at or after: 2027-03-28T02:30Z, or 1h for an hour ago"],
  ["before", "created_before", "submitted before"],
  ["ended-after", "ended_after", "ended at or after"],
  ["ended-before", "ended_before", "ended before"],
];

const TIMES = new Set(["created_after", "created_before", "ended_after", "ended_before"]);
const ID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i;

export function isId(text: string): boolean {
  return ID.test(text.trim());
}

export interface Read {
  query: URLSearchParams;
  /** What cannot be understood, one sentence each. */
  problems: string[];
}

/** The words of a box: spaces part them, quotes hold them together. */
function words(text: string): string[] {
  const found: string[] = [];
  for (const match of text.matchAll(/(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g)) found.push(match[0]);
  return found;
}

/** Where the name of a condition ends: at the first colon that does not stand in quotes. */
function nameEnd(word: string): number {
  const name = /^(?:[^":]|"(?:[^"\\]|\\.)*")*(?=:)/.exec(word);
  return name ? name[0].length : -1;
}

function unquoted(text: string): string {
  return text.replace(/"((?:[^"\\]|\\.)*)"?/g, (_, inner: string) => inner.replace(/\\(.)/g, "$1"));
}

function quoted(text: string): string {
  return text === "" || /[\s"\\]/.test(text) ? inQuotes(text) : text;
}

function inQuotes(text: string): string {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

const SPANS: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A moment: an RFC 3339 time, a date, or how long ago. */
export function moment(text: string): string | null {
  const ago = /^(\d+)([smhd])$/.exec(text);
  if (ago) return new Date(now() - Number(ago[1]) * SPANS[ago[2]!]!).toISOString();
  const time = Date.parse(text);
  return Number.isNaN(time) ? null : new Date(time).toISOString();
}

/** What is in the box, as a query. */
export function read(text: string): Read {
  const query = new URLSearchParams();
  const problems: string[] = [];
  const plain: string[] = [];
  for (const word of words(text)) {
    const colon = nameEnd(word);
    const name = colon < 0 ? "" : word.slice(0, colon);
    const value = unquoted(word.slice(colon + 1));
    const tag = unquoted(name).startsWith("tag.") ? unquoted(name) : null;
    const known = CONDITIONS.find(([own]) => own === name);
    if (colon < 0) plain.push(unquoted(word));
    else if (value === "") problems.push(`${name}: needs a value`);
    else if (tag) query.set(tag, value);
    else if (!known)
      problems.push(`${name}: is not known; there are ${CONDITIONS.map(([own]) => own).join(", ")}, tag.KEY`);
    else if (known[1] === "state") {
      const strange = value.split(",").find((state) => !STATES.includes(state as State));
      if (strange !== undefined) problems.push(`“${strange}” is no state; there are ${STATES.join(", ")}`);
      else query.set("state", value);
    } else if (TIMES.has(known[1])) {
      const time = moment(value);
      if (time) query.set(known[1], time);
      else problems.push(`“${value}” is no time: write 2027-03-28T02:30Z, or 1h for an hour ago`);
    } else query.set(known[1], value);
  }
  // Words alone are text to be found, in the order in which they stand.
  if (plain.length > 0) query.set("text", [query.get("text"), ...plain].filter(Boolean).join(" "));
  return { query, problems };
}

/** A query as what stands in the box. */
export function write(query: URLSearchParams): string {
  const found: string[] = [];
  for (const [word, parameter] of CONDITIONS) {
    const value = query.get(parameter);
    if (value) found.push(`${word}:${quoted(value)}`);
  }
  for (const [name, value] of query) if (name.startsWith("tag.")) found.push(`${tagWord(name)}:${quoted(value)}`);
  return found.join(" ");
}

function tagWord(name: string): string {
  return /[\s":\\]/.test(name) ? inQuotes(name) : name;
}

/** The conditions of a query, without its page and other matters. */
export function conditions(query: URLSearchParams): URLSearchParams {
  const kept = new URLSearchParams();
  const known = (name: string) => name === "changed_before" || CONDITIONS.some(([, parameter]) => parameter === name);
  for (const [name, value] of query) if (name.startsWith("tag.") || known(name)) kept.set(name, value);
  return kept;
}

/** The conditions as the body of an operation holds them. */
export function filter(query: URLSearchParams): Schemas["Filter"] {
  const body: Record<string, unknown> = {};
  const tags: Record<string, string> = {};
  for (const [name, value] of conditions(query)) {
    if (name === "state") body.state = value.split(",");
    else if (name.startsWith("tag.")) tags[name.slice(4)] = value;
    else body[name] = value;
  }
  if (Object.keys(tags).length > 0) body.tags = tags;
  return body as Schemas["Filter"];
}

/** The conditions as options of the command line. */
export function flags(query: URLSearchParams): string {
  let found = "";
  for (const [name, value] of conditions(query)) {
    if (name.startsWith("tag.")) found += ` --tag ${inShell(`${name.slice(4)}=${value}`)}`;
    else if (name === "state") for (const state of value.split(",")) found += ` --state ${state}`;
    else found += ` --${name.replaceAll("_", "-")} ${inShell(value)}`;
  }
  return found;
}
