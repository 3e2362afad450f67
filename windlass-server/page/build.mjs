// Builds the page into `dist`, and prints `../src/page/assets.rs`, the table by which the binary holds it.
//
//   node build.mjs            builds
//   node build.mjs --watch    builds again at every change; a debug binary reads `dist` from disk, so reload is enough
//   node build.mjs --check    builds in memory and fails when `dist` or the table differs

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, watch, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const table = join(here, "../src/page/assets.rs");

/** What the page is made of: everything whose change could change `dist`. */
function sources() {
  const walk = (folder) =>
    readdirSync(join(here, folder), { withFileTypes: true }).flatMap((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? walk(path) : [path];
    });
  const rest = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"];
  // Types are checked and then forgotten; the file with the API's is printed anew for each check.
  return [...walk("src"), ...rest].filter((path) => path !== "src/api/types.ts").sort();
}

/** One line a source: its SHA-256 and its path. `tests/tidy.rs` compares them without Node. */
function sourcesText() {
  const hash = (path) =>
    createHash("sha256")
      .update(readFileSync(join(here, path)))
      .digest("hex");
  return sources()
    .map((path) => `${hash(path)}  ${path}\n`)
    .join("");
}

async function built() {
  const result = await build({
    absWorkingDir: here,
    entryPoints: { main: "src/main.tsx", style: "src/style/main.css", icon: "src/icon.svg" },
    entryNames: "[name]-[hash]",
    chunkNames: "part-[hash]",
    assetNames: "[name]-[hash]",
    loader: { ".svg": "copy" },
    outdir: "dist",
    bundle: true,
    splitting: true,
    format: "esm",
    target: ["es2022", "chrome123", "firefox121", "safari17.5"],
    minify: true,
    legalComments: "none",
    metafile: true,
    write: false,
    logLevel: "warning",
  });
  const files = new Map(result.outputFiles.map((file) => [relative(dist, file.path), Buffer.from(file.contents)]));
  const named = (start, end) => [...files.keys()].find((name) => name.startsWith(start) && name.endsWith(end));
  const entry = readFileSync(join(here, "src/index.html"), "utf8")
    .replace("main.js", named("main-", ".js"))
    .replace("style.css", named("style-", ".css"))
    .replace("icon.svg", named("icon-", ".svg"));
  const assets = [...files.keys()].sort();
  files.set("index.html", Buffer.from(entry));
  files.set("SOURCES", Buffer.from(sourcesText()));
  return { files, assets };
}

function tableText(assets) {
  const rows = assets.map(
    (name) => `    Asset { name: "${name}", bytes: include_bytes!("../../page/dist/${name}") },\n`,
  );
  return `//! Printed by \`windlass-server/page/build.mjs\`; do not edit.

use super::Asset;

/// The page's one document.
pub(super) const ENTRY: &[u8] = include_bytes!("../../page/dist/index.html");

/// Its other files, by name.
#[rustfmt::skip]
pub(super) const ASSETS: [Asset; ${assets.length}] = [
${rows.join("")}];
`;
}

async function write() {
  const { files, assets } = await built();
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist);
  for (const [name, bytes] of files) writeFileSync(join(dist, name), bytes);
  writeFileSync(table, tableText(assets));
  const size = assets.reduce((sum, name) => sum + files.get(name).length, 0);
  console.log(`built ${assets.length} files, ${size} bytes`);
}

async function check() {
  const { files, assets } = await built();
  const differs = [...files].filter(([name, bytes]) => {
    try {
      return !readFileSync(join(dist, name)).equals(bytes);
    } catch {
      return true;
    }
  });
  const extra = readdirSync(dist).filter((name) => !files.has(name));
  const names = [...differs.map(([name]) => name), ...extra];
  if (readFileSync(table, "utf8") !== tableText(assets)) names.push("assets.rs");
  if (names.length > 0) {
    console.error(`the page's files are not what its sources build: ${names.join(", ")}; run \`node build.mjs\``);
    process.exit(1);
  }
  console.log("dist is what the sources build");
}

if (process.argv.includes("--check")) {
  await check();
} else {
  await write();
  if (process.argv.includes("--watch")) {
    let timer;
    watch(join(here, "src"), { recursive: true }, () => {
      clearTimeout(timer);
      timer = setTimeout(() => write().catch((problem) => console.error(problem.message)), 100);
    });
  }
}
