// Light, dark, or as the system has it.

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

export function nextTheme() {
  setTheme(theme.value === "system" ? "light" : theme.value === "light" ? "dark" : "system");
}
