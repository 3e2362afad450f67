// What this browser remembers for somebody: views that they saved and columns that they chose. Nothing secret is kept.

import { signal } from "@preact/signals";

export interface View {
  name: string;
  /** The query of the jobs screen. */
  search: string;
}

const VIEWS_MAX = 50;

function kept<T>(key: string, sane: (value: unknown) => value is T, otherwise: T): T {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(key) ?? "null");
    return sane(value) ? value : otherwise;
  } catch {
    return otherwise;
  }
}

function areViews(value: unknown): value is View[] {
  return Array.isArray(value) && value.every((one) => typeof one?.name === "string" && typeof one?.search === "string");
}

function areWords(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((one) => typeof one === "string");
}

export const views = signal<View[]>(kept("windlass.views", areViews, []));
/** The columns of the jobs screen that are left out. */
export const hidden = signal<string[]>(kept("windlass.hidden-columns", areWords, ["Priority", "Worker", "Tags"]));

/** Views with one more; one of the same name is replaced, and the oldest goes when there are too many. */
export function withView(all: View[], view: View): View[] {
  return [...all.filter((one) => one.name !== view.name), view].slice(-VIEWS_MAX);
}

export function saveView(view: View) {
  views.value = withView(views.value, view);
  localStorage.setItem("windlass.views", JSON.stringify(views.value));
}

export function removeView(name: string) {
  views.value = views.value.filter((one) => one.name !== name);
  localStorage.setItem("windlass.views", JSON.stringify(views.value));
}

export function showColumn(name: string, shown: boolean) {
  hidden.value = shown ? hidden.value.filter((one) => one !== name) : [...hidden.value, name];
  localStorage.setItem("windlass.hidden-columns", JSON.stringify(hidden.value));
}
