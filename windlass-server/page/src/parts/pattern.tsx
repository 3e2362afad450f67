// A message with what differs from job to job marked: `<n>`, `<hex>`, `<id>`, `<text>`, `<path>`.

import { Text } from "./text.tsx";

const WORDS: Record<string, string> = {
  n: "number",
  hex: "hex",
  id: "id",
  text: "text",
  path: "path",
};

export function Pattern({ text }: { text: string }) {
  const parts = text.split(/(<(?:n|hex|id|text|path)>)/);
  return (
    <>
      {parts.map((part, at) =>
        at % 2 === 1 ? (
          <span key={at} class="varies" title="differs from job to job">
            {WORDS[part.slice(1, -1)]}
          </span>
        ) : (
          <Text key={at}>{part}</Text>
        ),
      )}
    </>
  );
}
