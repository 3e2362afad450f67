// Colours by WCAG: 4.5 for text, 3 for marks, in both themes. axe sees what is drawn; this sees every pair that may be.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const text = readFileSync(new URL("../../src/style/tokens.css", import.meta.url), "utf8").split("@media")[0];
const colours = Object.fromEntries(
  [...text.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g)].map(([, name, light, dark]) => [
    name,
    [light, dark],
  ]),
);

function luminance(colour) {
  const [red, green, blue] = [1, 3, 5]
    .map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function ratio(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

const STATES = [
  "pending",
  "delayed",
  "scheduled",
  "running",
  "retrying",
  "completed",
  "failed",
  "dead_letter",
  "cancelled",
];
const GROUNDS = ["ground", "surface", "sunken", "hover"];

const pairs = [
  ...["text", "muted", "accent", "danger", "warning", "good", ...STATES].flatMap((ink) =>
    GROUNDS.map((ground) => [ink, ground, 4.5]),
  ),
  ...["accent", "danger", "warning", "good"].map((name) => ["text", `${name}-ground`, 4.5]),
  ...["accent", "danger", "warning", "good"].map((name) => ["muted", `${name}-ground`, 4.5]),
  ...["accent", "danger", "warning"].map((name) => [name, `${name}-ground`, 4.5]),
  ["accent", "danger-ground", 4.5],
  ["accent", "warning-ground", 4.5],
  ["accent", "good-ground", 4.5],
  ["on-accent", "accent", 4.5],
  ["line-strong", "surface", 3],
  ["line-strong", "ground", 3],
];

for (const [place, theme] of ["light", "dark"].entries()) {
  test(`every ink can be read on every ground, ${theme}`, () => {
    const poor = pairs
      .map(([ink, ground, least]) => [ink, ground, least, ratio(colours[ink][place], colours[ground][place])])
      .filter(([, , least, found]) => found < least)
      .map(([ink, ground, least, found]) => `${ink} on ${ground}: ${found.toFixed(2)} < ${least}`);
    assert.deepEqual(poor, []);
  });
}
