// The entry: asks who looks, and shows the screen of the path.

import { render } from "preact";
import { App } from "./app.tsx";
import { onKey } from "./parts/keys.ts";
import { setTheme, theme } from "./parts/theme.ts";

setTheme(theme.value);
document.addEventListener("keydown", onKey);
const root = document.getElementById("page");
if (root) render(<App />, root);
