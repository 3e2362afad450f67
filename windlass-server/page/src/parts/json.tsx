// JSON as it was written: a number of twenty digits keeps all of them, which the browser's own parser would round.

import type { ComponentChildren } from "preact";
import { Text } from "./text.tsx";

export type Node =
  | { kind: "object"; members: [string, Node][] }
  | { kind: "array"; items: Node[] }
  | { kind: "string"; text: string }
  | { kind: "value"; text: string };

const DEPTH_MAX = 200;

/** Reads JSON and keeps numbers as text; `null` for what is no JSON or too deep to show. */
export function read(text: string): Node | null {
  let at = 0;
  const space = () => {
    while (" \t\n\r".includes(text[at] ?? "x")) at += 1;
  };
  const take = (pattern: RegExp): string | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) return null;
    at += found[0].length;
    return found[0];
  };
  const string = (): string | null => {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON forbids them
    const raw = take(/"(?:[^"\\\u0000-\u001f]|\\.)*"/y);
    return raw === null ? null : (JSON.parse(raw) as string);
  };
  const list = <T,>(end: string, one: () => T | null): T[] | null => {
    const found: T[] = [];
    at += 1;
    space();
    if (text[at] === end) {
      at += 1;
      return found;
    }
    for (;;) {
      const item = one();
      if (item === null) return null;
      found.push(item);
      space();
      const next = text[at++];
      if (next === end) return found;
      if (next !== ",") return null;
    }
  };
  const value = (depth: number): Node | null => {
    space();
    if (depth > DEPTH_MAX) return null;
    if (text[at] === "{") {
      const members = list<[string, Node]>("}", () => {
        space();
        const key = string();
        space();
        if (key === null || text[at++] !== ":") return null;
        const inner = value(depth + 1);
        return inner && [key, inner];
      });
      return members && { kind: "object", members };
    }
    if (text[at] === "[") {
      const items = list("]", () => value(depth + 1));
      return items && { kind: "array", items };
    }
    if (text[at] === '"') {
      const found = string();
      return found === null ? null : { kind: "string", text: found };
    }
    const found = take(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y);
    return found === null ? null : { kind: "value", text: found };
  };
  try {
    const whole = value(0);
    space();
    return at === text.length ? whole : null;
  } catch {
    return null;
  }
}

const OPEN_DEPTH = 3;
const ITEMS_MAX = 500;

function Leaf({ name, node }: { name: ComponentChildren; node: Node & { text: string } }) {
  return (
    <div class="leaf">
      {name}
      <span class={node.kind === "string" ? "string" : "value"}>
        {node.kind === "string" ? (
          <>
            "<Text>{node.text}</Text>"
          </>
        ) : (
          node.text
        )}
      </span>
    </div>
  );
}

function Tree({ name, node, depth }: { name: ComponentChildren; node: Node; depth: number }) {
  if (node.kind === "string" || node.kind === "value") return <Leaf name={name} node={node} />;
  const entries: [ComponentChildren, Node][] =
    node.kind === "array"
      ? node.items.map((item, index) => [<span class="muted">{index}: </span>, item])
      : node.members.map(([key, item]) => [
          <span class="key">
            <Text>{key}</Text>:{" "}
          </span>,
          item,
        ]);
  const brackets = node.kind === "array" ? `[${entries.length}]` : `{${entries.length}}`;
  if (entries.length === 0)
    return <Leaf name={name} node={{ kind: "value", text: node.kind === "array" ? "[]" : "{}" }} />;
  return (
    <details open={depth < OPEN_DEPTH && entries.length <= 50}>
      <summary>
        {name}
        <span class="muted">{brackets}</span>
      </summary>
      {entries.slice(0, ITEMS_MAX).map(([inner, item], at) => (
        <Tree key={at} name={inner} node={item} depth={depth + 1} />
      ))}
      {entries.length > ITEMS_MAX ? <div class="leaf muted">… and {entries.length - ITEMS_MAX} more</div> : null}
    </details>
  );
}

export function Json({ text }: { text: string }) {
  const node = read(text);
  if (node === null) {
    return (
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys
      <section class="json" tabIndex={0} aria-label="text">
        <Text>{text}</Text>
      </section>
    );
  }
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys
    <section class="json" tabIndex={0} aria-label="JSON">
      <Tree name={null} node={node} depth={0} />
    </section>
  );
}
