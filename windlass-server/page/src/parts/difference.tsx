// Two texts beside each other: what is gone and what has come, by sign and word as well as by colour.

import { compare } from "./compare.ts";
import { Text } from "./text.tsx";

const SIGNS = { same: " ", old: "−", new: "+" };
const WORDS = { same: "", old: "only before: ", new: "only now: " };

export function Difference({ before, after, label }: { before: string; after: string; label: string }) {
  const pieces = compare(before, after);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys
    <section class="json difference" tabIndex={0} aria-label={label}>
      {pieces.map((piece, at) => (
        <div key={at} class={piece.kind}>
          <span aria-hidden="true">{SIGNS[piece.kind]} </span>
          <span class="hidden-text">{WORDS[piece.kind]}</span>
          <Text>{piece.text || " "}</Text>
        </div>
      ))}
    </section>
  );
}
