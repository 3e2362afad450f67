// Icons, drawn here so that nothing is loaded. A state's icon differs by shape as well as by colour.

import type { State } from "../api/client.ts";

const STATE: Record<State, string> = {
  pending: "M5 3.5v9M11 3.5v9",
  delayed: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2ZM8 5v3.2l2.2 1.6",
  scheduled: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2Z",
  running: "M4.5 2.8 12.5 8l-8 5.2Z",
  retrying: "M13 8a5 5 0 1 1-1.6-3.7M13.2 2v3h-3",
  completed: "m3 8.4 3.4 3.4L13 4.6",
  failed: "m4 4 8 8M12 4l-8 8",
  dead_letter: "M5.2 2h5.6L14 5.2v5.6L10.8 14H5.2L2 10.8V5.2ZM8 5v3.6M8 11h.01",
  cancelled: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2ZM4 4l8 8",
};

export function StateIcon({ state }: { state: State }) {
  const filled = state === "running";
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true" fill={filled ? "currentColor" : "none"} stroke="currentColor">
      <path d={STATE[state]} stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}

const DRAWN = {
  overview: "M3 3h6v8H3zM11 3h6v4h-6zM11 9h6v8h-6zM3 13h6v4H3z",
  jobs: "M4 5h12M4 10h12M4 15h12",
  errors: "M10 3 18 17H2ZM10 8v4M10 14.5h.01",
  queues: "M3 6l7-3 7 3-7 3ZM3 10l7 3 7-3M3 14l7 3 7-3",
  workflows: "M3 3h5v4H3zM12 13h5v4h-5zM12 3h5v4h-5zM8 5h4M14.5 7v6M5.5 7v8H12",
  schedules: "M3 5h14v12H3zM3 9h14M7 3v4M13 3v4",
  workers:
    "M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM10 2v3M10 15v3M2 10h3M15 10h3M4.5 4.5l2 2M13.5 13.5l2 2M15.5 4.5l-2 2M6.5 13.5l-2 2",
  acts: "M4 16l1-4 8-8 3 3-8 8ZM11 6l3 3",
  enqueue: "M10 4v12M4 10h12",
  server: "M3 4h14v5H3zM3 11h14v5H3zM6 6.5h.01M6 13.5h.01",
  menu: "M3 5h14M3 10h14M3 15h14",
  sun: "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7ZM10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M15.7 4.3l-1.1 1.1M5.4 14.6l-1.1 1.1",
  moon: "M16 12.5A6.5 6.5 0 0 1 7.5 4 6.5 6.5 0 1 0 16 12.5Z",
  both: "M10 3a7 7 0 1 0 0 14ZM10 3a7 7 0 0 1 0 14",
  copy: "M7 7h9v10H7zM4 13V3h9",
  pause: "M6 4v12M14 4v12",
  play: "M6 4l10 6-10 6Z",
};

export function Icon({ name }: { name: keyof typeof DRAWN }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true" fill="none" stroke="currentColor">
      <path d={DRAWN[name]} stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}

export function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2.8">
      <circle cx="16" cy="16" r="6.5" />
      <path d="M16 2v7M16 23v7M2 16h7M23 16h7M6 6l5 5M21 21l5 5M26 6l-5 5M11 21l-5 5" stroke-linecap="round" />
    </svg>
  );
}
