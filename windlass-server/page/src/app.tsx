// The frame around every screen: head, places, the screen of the path, dialogs, and what is said aloud.

import type { ComponentType } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Refused, signedOut } from "./api/client.ts";
import { isId } from "./api/filter.ts";
import { awaySince, paused, second } from "./api/live.ts";
import { me, meet, signOut } from "./api/me.ts";
import { outdated } from "./api/pulse.ts";
import { spoken } from "./parts/copy.tsx";
import { dialog, done } from "./parts/dialog.tsx";
import { Help } from "./parts/help.tsx";
import { Icon, Mark } from "./parts/icon.tsx";
import { cursorRow, helpOpen, paletteOpen } from "./parts/keys.ts";
import { Problem } from "./parts/notice.tsx";
import { Palette } from "./parts/palette.tsx";
import { nextTheme, theme } from "./parts/theme.ts";
import { inUtc, setUtc } from "./parts/time.tsx";
import { go, href, path } from "./router.ts";
import { ActsScreen } from "./screens/acts.tsx";
import { EnqueueScreen } from "./screens/enqueue.tsx";
import { ErrorScreen, ErrorsScreen } from "./screens/errors.tsx";
import { JobScreen } from "./screens/job.tsx";
import { JobsScreen } from "./screens/jobs.tsx";
import { Overview } from "./screens/overview.tsx";
import { QueueScreen } from "./screens/queue.tsx";
import { QueuesScreen } from "./screens/queues.tsx";
import { EditScheduleScreen, NewScheduleScreen, ScheduleScreen, SchedulesScreen } from "./screens/schedules.tsx";
import { ServerScreen } from "./screens/server.tsx";
import { SignIn } from "./screens/sign-in.tsx";
import { WorkersScreen } from "./screens/workers.tsx";
import { WorkflowScreen } from "./screens/workflow.tsx";
import { WorkflowsScreen } from "./screens/workflows.tsx";
import { about } from "./words.ts";

type Screen = ComponentType<{ name: string }>;

const NAV: [path: string, word: string, icon: Parameters<typeof Icon>[0]["name"], apart?: boolean][] = [
  ["/", "Overview", "overview"],
  ["/jobs", "Jobs", "jobs"],
  ["/errors", "Errors", "errors"],
  ["/queues", "Queues", "queues"],
  ["/workflows", "Workflows", "workflows"],
  ["/schedules", "Schedules", "schedules"],
  ["/workers", "Workers", "workers"],
  ["/acts", "Acts", "acts"],
  ["/enqueue", "Enqueue", "enqueue", true],
  ["/server", "Server", "server"],
];

const SCREENS: [RegExp, string, Screen][] = [
  [/^\/$/, "Overview", Overview],
  [/^\/jobs$/, "Jobs", JobsScreen],
  [/^\/jobs\/([^/]+)$/, "Job", JobScreen],
  [/^\/errors$/, "Errors", ErrorsScreen],
  [/^\/errors\/([^/]+)$/, "Error", ErrorScreen],
  [/^\/queues$/, "Queues", QueuesScreen],
  [/^\/queues\/([^/]+)$/, "Queue", QueueScreen],
  [/^\/workflows$/, "Workflows", WorkflowsScreen],
  [/^\/workflows\/([^/]+)$/, "Workflow", WorkflowScreen],
  [/^\/schedules$/, "Schedules", SchedulesScreen],
  [/^\/schedules\/~new$/, "New schedule", NewScheduleScreen],
  [/^\/schedules\/([^/]+)$/, "Schedule", ScheduleScreen],
  [/^\/schedules\/([^/]+)\/edit$/, "Edit schedule", EditScheduleScreen],
  [/^\/workers$/, "Workers", WorkersScreen],
  [/^\/acts$/, "Acts", ActsScreen],
  [/^\/enqueue$/, "Enqueue", EnqueueScreen],
  [/^\/server$/, "Server", ServerScreen],
];

function Nowhere() {
  return (
    <>
      <h1>There is nothing here</h1>
      <p>
        The address leads to no screen. <a href={href("/")}>Go to the overview</a>
      </p>
    </>
  );
}

function screenOf(at: string): [Screen, string, string] {
  for (const [pattern, title, screen] of SCREENS) {
    const found = pattern.exec(at);
    if (found) {
      const raw = decodeURIComponent(found[1] ?? "");
      return [screen, raw ? `${raw} · ${title}` : title, raw];
    }
  }
  return [Nowhere, "Nothing here", ""];
}

function Jump() {
  const [text, setText] = useState("");
  const jump = (event: Event) => {
    event.preventDefault();
    const wanted = text.trim();
    if (wanted === "") return;
    setText("");
    if (isId(wanted)) go(`/jobs/${wanted}`);
    else go(`/jobs?find=${encodeURIComponent(wanted)}`);
    document.querySelector<HTMLElement>("main")?.focus();
  };
  return (
    <search>
      <form onSubmit={jump}>
        <input
          id="search"
          type="search"
          aria-label="Search jobs: an id, or conditions such as state:failed queue:mail"
          placeholder="Job id, or state:failed queue:mail …"
          autocomplete="off"
          spellcheck={false}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </form>
    </search>
  );
}

function Live() {
  second.value;
  const away = awaySince.value > 0;
  const word = away ? `away for ${about(Date.now() - awaySince.value)}` : paused.value ? "paused" : "live";
  return (
    <button
      type="button"
      class="button quiet"
      aria-pressed={paused.value}
      aria-label={word}
      title={paused.value ? "Go on by itself (.)" : "Stop all motion (.)"}
      onClick={() => {
        paused.value = !paused.value;
      }}
    >
      <span class={`live-dot ${away ? "away" : paused.value ? "paused" : ""}`} aria-hidden="true" />
      <span class="wide">{word}</span>
    </button>
  );
}

function Who() {
  const known = me.value;
  if (!known) return null;
  if (!known.session)
    return <span class="small muted wide">{known.name ?? (known.read_only ? "read-only" : "no token")}</span>;
  return (
    <>
      <span class="small muted wide">
        {known.name} · {known.role}
      </span>
      <button type="button" class="button quiet" onClick={() => void signOut()}>
        Sign out
      </button>
    </>
  );
}

function Top({ toggle, open }: { toggle: () => void; open: boolean }) {
  const icon = theme.value === "light" ? "sun" : theme.value === "dark" ? "moon" : "both";
  return (
    <header class="top">
      <button type="button" class="button quiet menu-button" aria-expanded={open} aria-label="Places" onClick={toggle}>
        <Icon name="menu" />
      </button>
      <a class="brand" href={href("/")} aria-label="Windlass, overview">
        <Mark />
        <span>Windlass</span>
      </a>
      <Jump />
      <button
        type="button"
        class="button quiet wide"
        title="Go to any screen, queue, type or schedule"
        onClick={() => {
          paletteOpen.value = true;
        }}
      >
        Go to <kbd>Ctrl K</kbd>
      </button>
      <div class="row">
        <Live />
        <button
          type="button"
          class="button quiet zone wide"
          aria-label={`Times: ${inUtc.value ? "UTC" : "local time"}. Change`}
          title={`Times: ${inUtc.value ? "UTC" : "of this browser's zone"} (u)`}
          onClick={() => setUtc(!inUtc.value)}
        >
          {inUtc.value ? "UTC" : "local time"}
        </button>
        <button
          type="button"
          class="button quiet"
          aria-label={`Theme: ${theme.value}. Change`}
          title={`Theme: ${theme.value} (t)`}
          onClick={nextTheme}
        >
          <Icon name={icon} />
        </button>
        <Who />
      </div>
    </header>
  );
}

function Side({ open }: { open: boolean }) {
  const at = path.value;
  const isHere = (to: string) => (to === "/" ? at === "/" : at === to || at.startsWith(`${to}/`));
  return (
    <nav class={`side ${open ? "open" : ""}`} aria-label="Places">
      <ul>
        {NAV.map(([to, word, icon, apart]) => (
          <li key={to} class={apart ? "apart" : ""}>
            <a href={href(to)} aria-current={isHere(to) ? "page" : undefined}>
              <Icon name={icon} />
              {word}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function putAway() {
  done.value = null;
}

function Said() {
  useEffect(() => {
    if (!done.value) return;
    const timer = setTimeout(putAway, 8000);
    return () => clearTimeout(timer);
  }, [done.value]);
  if (!done.value) return null;
  return (
    <div class="notice good toast" role="status">
      {done.value}
      <button type="button" class="button quiet tiny push" onClick={putAway}>
        Put away
      </button>
    </div>
  );
}

function Page() {
  const at = path.value;
  const [open, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  const [Screen, title, name] = screenOf(at);
  // Before it is drawn: a key may come right after.
  useLayoutEffect(() => {
    cursorRow.value = "";
  }, [at]);
  useEffect(() => {
    document.title = `${title} · Windlass`;
    setOpen(false);
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
  }, [at, title]);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <Top toggle={() => setOpen(!open)} open={open} />
      <div class="frame">
        <Side open={open} />
        <main id="main" tabIndex={-1} ref={main}>
          {outdated.value ? (
            <p class="notice">
              The server has another version than this page.
              <button type="button" class="button tiny" onClick={() => window.location.reload()}>
                Load it anew
              </button>
            </p>
          ) : null}
          {me.value && !me.value.name && !me.value.read_only && me.value.role === "admin" ? <NoToken /> : null}
          <Screen key={at} name={name} />
        </main>
      </div>
      {dialog.value}
      {helpOpen.value ? <Help /> : null}
      {paletteOpen.value ? <Palette /> : null}
      <Said />
      <p class="hidden-text" aria-live="polite">
        {spoken.value}
      </p>
    </>
  );
}

function nothing() {}

/** What stands around every screen, while it is not yet known who looks. */
function Frame() {
  return (
    <>
      <Top toggle={nothing} open={false} />
      <div class="frame">
        <Side open={false} />
        <main />
      </div>
    </>
  );
}

function NoToken() {
  const [away, setAway] = useState(sessionStorage.getItem("windlass.no-token") === "seen");
  if (away) return null;
  return (
    <p class="notice small">
      No token: whoever reaches this address may do everything.
      <button
        type="button"
        class="button quiet tiny push"
        onClick={() => {
          sessionStorage.setItem("windlass.no-token", "seen");
          setAway(true);
        }}
      >
        Understood
      </button>
    </p>
  );
}

export function App() {
  const [problem, setProblem] = useState<Refused>();
  const begin = () => {
    setProblem(undefined);
    meet().catch((error) => {
      if (!(error instanceof Refused && error.status === 401)) setProblem(error as Refused);
    });
  };
  useEffect(begin, []);
  if (signedOut.value) return <SignIn />;
  if (problem) {
    return (
      <main>
        <h1>Windlass</h1>
        <Problem problem={problem} retry={begin} />
      </main>
    );
  }
  return me.value ? <Page /> : <Frame />;
}
