// One field: a token, shown once and kept by nobody.

import { useState } from "preact/hooks";
import { Refused } from "../api/client.ts";
import { signIn } from "../api/me.ts";
import { Mark } from "../parts/icon.tsx";
import { Problem } from "../parts/notice.tsx";

export function SignIn() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Refused>();
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      await signIn(token);
    } catch (error) {
      setProblem(error instanceof Refused ? error : new Refused(0, { detail: String(error) }));
      setBusy(false);
    }
  };
  document.title = "Sign in · Windlass";
  return (
    <main class="sign-in">
      <form class="card" onSubmit={submit}>
        <h1 class="brand">
          <Mark /> Windlass
        </h1>
        <p>This server wants a token. It is exchanged for a session of this browser and not kept.</p>
        <input type="text" name="username" value="windlass" autocomplete="username" hidden readOnly />
        <label class="field">
          <span>Token</span>
          <input
            type="password"
            name="token"
            autocomplete="current-password"
            required
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        {problem ? <Problem problem={problem} /> : null}
        <button type="submit" class="button primary" disabled={busy || token === ""}>
          {busy ? "Signing in…" : "Sign in"}
        </button>
        <p class="small muted">
          A token comes from <code>windlass token new</code> on the server.
        </p>
      </form>
    </main>
  );
}
