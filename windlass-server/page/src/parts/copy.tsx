// Things to take along: an id, a command, a curl line.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { base } from "../api/client.ts";
import { Icon } from "./icon.tsx";

/** What is said to those who cannot see that something has changed; one sentence at a time. */
export const spoken = signal("");

export function say(sentence: string) {
  spoken.value = sentence;
}

export async function copy(text: string): Promise<void> {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Plain HTTP on another address than loopback has no clipboard; selecting still works.
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function CopyButton({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  const take = async () => {
    await copy(text);
    setDone(true);
    say(`${what} copied`);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="button quiet tiny" onClick={take} aria-label={`Copy ${what}`} title={`Copy ${what}`}>
      <Icon name="copy" />
      {done ? "Copied" : ""}
    </button>
  );
}

/** A line for a terminal. */
export function Command({ line }: { line: string }) {
  return (
    <div class="command">
      <code>{line}</code>
      <CopyButton text={line} what="command" />
    </div>
  );
}

/** A word as a shell takes it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The curl line that does what a button does. */
export function curl(method: string, path: string, body?: unknown): string {
  const url = quoted(window.location.origin + base + path);
  const how = body !== undefined && method === "POST" ? "" : ` -X ${method}`;
  const json = body === undefined ? "" : ` --json ${quoted(JSON.stringify(body))}`;
  return `curl -s${how} ${url}${json}`;
}
