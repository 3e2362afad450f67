// Keys for those who leave the pointer alone. Single letters can be switched off, for those who speak to their computer.

import { signal } from "@preact/signals";
import { paused } from "../api/live.ts";
import { go } from "../router.ts";
import { nextTheme } from "./theme.ts";
import { inUtc, setUtc } from "./time.tsx";

/** The row on which `j` and `k` stand, by its id. */
export const cursorRow = signal("");
/** Whether single letters do anything. */
export const letters = signal(localStorage.getItem("windlass.letters") !== "off");
/** What a screen does with letters of its own: `x`, `r`, `c` and so on. */
export const own = signal<Record<string, (event: KeyboardEvent) => void>>({});
export const helpOpen = signal(false);
export const paletteOpen = signal(false);

export function setLetters(on: boolean) {
  letters.value = on;
  localStorage.setItem("windlass.letters", on ? "on" : "off");
}

export const PLACES: [key: string, path: string, word: string][] = [
  ["o", "/", "Overview"],
  ["j", "/jobs", "Jobs"],
  ["e", "/errors", "Errors"],
  ["q", "/queues", "Queues"],
  ["w", "/workflows", "Workflows"],
  ["s", "/schedules", "Schedules"],
  ["k", "/workers", "Workers"],
  ["a", "/acts", "Acts"],
];

let wentToG = 0;

function walk(by: number) {
  const rows = [...document.querySelectorAll<HTMLElement>("main tr[data-row]")];
  const at = rows.findIndex((row) => row.dataset.row === cursorRow.value);
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
  if (next) cursorRow.value = next.dataset.row ?? "";
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]")
  );
}

function toSearch() {
  document.querySelector<HTMLInputElement>("#search")?.focus();
}

export function onKey(event: KeyboardEvent) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    if (!document.querySelector("dialog[open]")) paletteOpen.value = true;
    return;
  }
  const busy = document.querySelector("dialog[open]") !== null;
  if (!letters.value || busy || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (Date.now() - wentToG < 1200) {
    wentToG = 0;
    const place = PLACES.find(([key]) => key === event.key);
    if (place) {
      event.preventDefault();
      go(place[1]);
      return;
    }
  }
  const does: Record<string, () => void> = {
    g: () => {
      wentToG = Date.now();
    },
    "?": () => {
      helpOpen.value = true;
    },
    "/": toSearch,
    ".": () => {
      paused.value = !paused.value;
    },
    t: nextTheme,
    u: () => setUtc(!inUtc.value),
    j: () => walk(1),
    k: () => walk(-1),
    Enter: () => document.querySelector<HTMLAnchorElement>("main tr.current a[href]")?.click(),
  };
  const act = own.value[event.key] ? () => own.value[event.key]?.(event) : does[event.key];
  // Enter belongs to the button or link that has the focus.
  if (!act || (event.key === "Enter" && (event.target as Element | null)?.closest?.("a, button, summary"))) return;
  event.preventDefault();
  act();
}
