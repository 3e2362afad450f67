// Reads JSON as it was written: a number of twenty digits keeps all of them, which the browser's own parser would round.

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
  const list = <T>(end: string, one: () => T | null): T[] | null => {
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

/** How many names and values hold this text, whatever their case. */
export function matches(node: Node, wanted: string): number {
  const has = (text: string) => (text.toLowerCase().includes(wanted.toLowerCase()) ? 1 : 0);
  if (node.kind === "object")
    return node.members.reduce((sum, [key, inner]) => sum + has(key) + matches(inner, wanted), 0);
  if (node.kind === "array") return node.items.reduce((sum, inner) => sum + matches(inner, wanted), 0);
  return has(node.text);
}
