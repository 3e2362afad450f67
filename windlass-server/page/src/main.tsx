// The entry: asks who looks, and shows the screen of the path.

import { render } from "preact";
import { App } from "./app.tsx";
import { onKey } from "./parts/keys.ts";
import { dense, setDense, setTheme, theme } from "./parts/theme.ts";

setTheme(theme.value);
setDense(dense.value);
document.addEventListener("keydown", onKey);
const root = document.getElementById("page");
// The head that the entry shows until the script is there is no part of what is drawn now.
root?.replaceChildren();
if (root) render(<App />, root);
