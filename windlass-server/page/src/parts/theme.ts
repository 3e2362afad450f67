// Light, dark, or as the system has it; and how close rows stand.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const kept = localStorage.getItem("windlass.theme");
export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "system");

export function setTheme(to: Theme) {
  theme.value = to;
  localStorage.setItem("windlass.theme", to);
  if (to === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = to;
}

/** Whether rows stand close, for those who want to see many. */
export const dense = signal(localStorage.getItem("windlass.rows") === "dense");

export function setDense(to: boolean) {
  dense.value = to;
  localStorage.setItem("windlass.rows", to ? "dense" : "roomy");
  document.documentElement.dataset.rows = to ? "dense" : "roomy";
}

export function nextTheme() {
  setTheme(theme.value === "system" ? "light" : theme.value === "light" ? "dark" : "system");
}
