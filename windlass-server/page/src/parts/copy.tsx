// Things to take along: an id, a command, a curl line.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { base } from "../api/client.ts";
import { quoted } from "../words.ts";
import { Icon } from "./icon.tsx";

export { quoted };

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

export function CopyButton({ text, what, word = "" }: { text: string; what: string; word?: string }) {
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
      {done ? "Copied" : word}
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

/** What a button does, as lines for a terminal, folded away until somebody wants them. */
export function Terminal({ lines }: { lines: string[] }) {
  return (
    <details>
      <summary class="small muted">The same from a terminal</summary>
      <div class="stack close">
        {lines.map((line) => (
          <Command key={line} line={line} />
        ))}
      </div>
    </details>
  );
}

/** The curl line that does what a button does. */
export function curl(method: string, path: string, body?: unknown): string {
  const url = quoted(window.location.origin + base + path);
  const how = method === "GET" || (body !== undefined && method === "POST") ? "" : ` -X ${method}`;
  const json = body === undefined ? "" : ` --json ${quoted(JSON.stringify(body))}`;
  return `curl -s${how} ${url}${json}`;
}
