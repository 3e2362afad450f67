// What is different between two texts, line by line: for the failures of two attempts, and two versions of a schedule.

export interface Piece {
  kind: "same" | "old" | "new";
  text: string;
}

const LINES_MAX = 400;

/** The lines of both: those that they share in order, and those that only one has. */
export function compare(before: string, after: string): Piece[] {
  const [old, fresh] = [before.split("\n").slice(0, LINES_MAX), after.split("\n").slice(0, LINES_MAX)];
  // `common[i][j]` is how many lines the rests from `i` and `j` share.
  const common = Array.from({ length: old.length + 1 }, () => new Array<number>(fresh.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i -= 1)
    for (let j = fresh.length - 1; j >= 0; j -= 1)
      common[i]![j] =
        old[i] === fresh[j] ? common[i + 1]![j + 1]! + 1 : Math.max(common[i + 1]![j]!, common[i]![j + 1]!);
  const found: Piece[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
      found.push({ kind: "same", text: old[i]! });
      i += 1;
      j += 1;
    } else if (j >= fresh.length || (i < old.length && common[i + 1]![j]! >= common[i]![j + 1]!)) {
      found.push({ kind: "old", text: old[i]! });
      i += 1;
    } else {
      found.push({ kind: "new", text: fresh[j]! });
      j += 1;
    }
  }
  return found;
}
