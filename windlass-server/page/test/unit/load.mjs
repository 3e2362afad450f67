// Loads a module of the page in Node: its TypeScript is stripped, and what a browser would have is stood in for.

import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

globalThis.document ??= {
  querySelector: () => null,
  hidden: true,
  addEventListener: () => {},
  documentElement: { dataset: {} },
};
globalThis.window ??= {
  location: { pathname: "/", search: "", origin: "http://localhost" },
  addEventListener: () => {},
  history: {},
};
globalThis.localStorage ??= { getItem: () => null, setItem: () => {} };

export async function load(path) {
  const result = await build({
    entryPoints: [fileURLToPath(new URL(`../../src/${path}`, import.meta.url))],
    bundle: true,
    format: "cjs",
    platform: "node",
    jsx: "automatic",
    jsxImportSource: "preact",
    write: false,
  });
  const module = { exports: {} };
  new Function("module", "exports", "require", result.outputFiles[0].text)(
    module,
    module.exports,
    createRequire(import.meta.url),
  );
  return module.exports;
}
