// The way through a list that goes by cursor: back to its beginning, on to the next page, and how long a page is.

import { go, href, query, withQuery } from "../router.ts";

const SIZES = [25, 50, 100, 200];

interface PagerProps {
  next: string | null | undefined;
  /** Whether the length of a page can be chosen. */
  sizes?: boolean;
  first?: string;
  more?: string;
}

export function Pager({ next, sizes, first = "Newest", more = "Older" }: PagerProps) {
  return (
    <>
      {query.value.get("cursor") ? (
        <a class="button tiny" href={href(withQuery({ cursor: null }))}>
          {first}
        </a>
      ) : null}
      {next ? (
        <a class="button tiny" href={href(withQuery({ cursor: next }))}>
          {more}
        </a>
      ) : (
        <span>The list ends here.</span>
      )}
      {sizes ? (
        <label class="row push">
          Rows
          <select
            class="tiny"
            value={query.value.get("limit") ?? "50"}
            onChange={(event) => go(withQuery({ limit: event.currentTarget.value, cursor: null }))}
          >
            {SIZES.map((size) => (
              <option key={size} value={size}>
                {size}
              </option>
            ))}
          </select>
        </label>
      ) : null}
    </>
  );
}
