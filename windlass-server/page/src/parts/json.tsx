// JSON as a tree that folds, with every digit as it was written; what is searched for is marked and unfolded.

import type { ComponentChildren } from "preact";
import { matches, type Node, read } from "./json-read.ts";
import { Text } from "./text.tsx";

export { read };

const OPEN_DEPTH = 3;
const ITEMS_MAX = 500;

/** Text with what is searched for marked. */
function Marked({ text, wanted }: { text: string; wanted: string }) {
  const at = wanted ? text.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
  if (at < 0) return <Text>{text}</Text>;
  return (
    <>
      <Text>{text.slice(0, at)}</Text>
      <mark>
        <Text>{text.slice(at, at + wanted.length)}</Text>
      </mark>
      <Text>{text.slice(at + wanted.length)}</Text>
    </>
  );
}

interface LeafProps {
  name: ComponentChildren;
  node: Node & { text: string };
  wanted: string;
}

function Leaf({ name, node, wanted }: LeafProps) {
  const quote = node.kind === "string" ? '"' : "";
  return (
    <div class="leaf">
      {name}
      <span class={node.kind}>
        {quote}
        <Marked text={node.text} wanted={wanted} />
        {quote}
      </span>
    </div>
  );
}

interface TreeProps {
  name: ComponentChildren;
  node: Node;
  depth: number;
  wanted: string;
}

function Tree({ name, node, depth, wanted }: TreeProps) {
  if (node.kind === "string" || node.kind === "value") return <Leaf name={name} node={node} wanted={wanted} />;
  const entries: [ComponentChildren, Node][] =
    node.kind === "array"
      ? node.items.map((item, index) => [<span class="muted">{index}: </span>, item])
      : node.members.map(([key, item]) => [
          <span class="key">
            <Marked text={key} wanted={wanted} />:{" "}
          </span>,
          item,
        ]);
  const brackets = node.kind === "array" ? `[${entries.length}]` : `{${entries.length}}`;
  if (entries.length === 0)
    return <Leaf name={name} node={{ kind: "value", text: node.kind === "array" ? "[]" : "{}" }} wanted="" />;
  const open = wanted ? matches(node, wanted) > 0 : depth < OPEN_DEPTH && entries.length <= 50;
  return (
    <details open={open}>
      <summary>
        {name}
        <span class="muted">{brackets}</span>
      </summary>
      {entries.slice(0, ITEMS_MAX).map(([inner, item], at) => (
        <Tree key={at} name={inner} node={item} depth={depth + 1} wanted={wanted} />
      ))}
      {entries.length > ITEMS_MAX ? <div class="leaf muted">… and {entries.length - ITEMS_MAX} more</div> : null}
    </details>
  );
}

export function Json({ text, wanted = "" }: { text: string; wanted?: string }) {
  const node = read(text);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys
    <section class="json" tabIndex={0} aria-label={node ? "JSON" : "text"}>
      {node ? (
        <Tree key={wanted} name={null} node={node} depth={0} wanted={wanted} />
      ) : (
        <Marked text={text} wanted={wanted} />
      )}
    </section>
  );
}
