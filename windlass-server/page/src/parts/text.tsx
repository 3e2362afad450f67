// What producers wrote, shown as text: control characters and those that change the direction of writing are shown, not
// obeyed, so that no name can pretend to be another.

import type { ComponentChildren } from "preact";

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const STRANGE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** The text in pieces: plain ones, and each strange character by its number. */
export function pieces(text: string): { plain?: string; strange?: string }[] {
  const found: { plain?: string; strange?: string }[] = [];
  let from = 0;
  for (const match of text.matchAll(STRANGE)) {
    if (match.index > from) found.push({ plain: text.slice(from, match.index) });
    found.push({ strange: `U+${match[0].codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}` });
    from = match.index + 1;
  }
  if (from < text.length) found.push({ plain: text.slice(from) });
  return found;
}

export function Text({ children }: { children: string }): ComponentChildren {
  if (children.search(STRANGE) < 0) return children;
  return pieces(children).map((piece, at) =>
    piece.strange ? (
      <span key={at} class="control">
        {piece.strange}
      </span>
    ) : (
      piece.plain
    ),
  );
}
