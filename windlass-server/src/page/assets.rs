//! Printed by `windlass-server/page/build.mjs`; do not edit.

use super::Asset;

/// The page's one document.
pub(super) const ENTRY: &[u8] = include_bytes!("../../page/dist/index.html");

/// Its other files, by name.
#[rustfmt::skip]
pub(super) const ASSETS: [Asset; 3] = [
    Asset { name: "icon-MEIF7CUP.svg", bytes: include_bytes!("../../page/dist/icon-MEIF7CUP.svg") },
    Asset { name: "main-F3REL4NZ.js", bytes: include_bytes!("../../page/dist/main-F3REL4NZ.js") },
    Asset { name: "style-43DCTNY6.css", bytes: include_bytes!("../../page/dist/style-43DCTNY6.css") },
];
