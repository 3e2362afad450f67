// Where one is: the path picks the screen, the query is all of its state. Back undoes, and a copied link shows the same.

import { computed, signal } from "@preact/signals";
import { base } from "./api/client.ts";

const here = () => ({ path: window.location.pathname.slice(base.length) || "/", search: window.location.search });

export const place = signal(here());
export const path = computed(() => place.value.path);
export const query = computed(() => new URLSearchParams(place.value.search));

window.addEventListener("popstate", () => {
  place.value = here();
});

/** Goes to a path of the page. */
export function go(to: string, replace = false) {
  if (to === place.value.path + place.value.search) return;
  if (replace) window.history.replaceState(null, "", base + to);
  else window.history.pushState(null, "", base + to);
  const before = place.value.path;
  place.value = here();
  if (before !== place.value.path) window.scrollTo(0, 0);
}

/** The present path with these parts of the query changed; `null` takes one out. */
export function withQuery(changes: Record<string, string | null>): string {
  const changed = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(changes)) {
    changed.delete(name);
    if (value !== null && value !== "") changed.set(name, value);
  }
  const text = changed.toString();
  return path.value + (text ? `?${text}` : "");
}

/** An address of the page as a link holds it. */
export function href(to: string): string {
  return base + to;
}

// Links within the page do not load it again.
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
    return;
  const link = (event.target as Element | null)?.closest?.("a[href]");
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  const raw = link.getAttribute("href") ?? "";
  const inside = raw.startsWith(`${base}/`) && !/^\/(v1|metrics)(\/|$)/.test(raw.slice(base.length));
  if (link.origin !== window.location.origin || !inside) return;
  event.preventDefault();
  go(raw.slice(base.length));
});
