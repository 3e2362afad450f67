// What a job's handler logged: of all attempts or of one, searched, followed, copied, saved.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { counted } from "../words.ts";
import { CopyButton } from "./copy.tsx";
import { save } from "./export.tsx";
import { Empty, Loaded } from "./notice.tsx";
import { Text } from "./text.tsx";
import { clock } from "./time.tsx";

type Line = Schemas["LogLine"];
type Attempt = Schemas["Attempt"];

function asText(lines: Line[]): string {
  return lines.map((line) => `${line.at} ${line.text}\n`).join("");
}

interface Shown {
  lines: Line[];
  attempts: Attempt[];
  live: boolean;
  id: string;
}

function Lines({ lines, attempts, live, id }: Shown) {
  const [wanted, setWanted] = useState("");
  const [attempt, setAttempt] = useState("");
  const [follows, setFollows] = useState(live);
  const element = useRef<HTMLElement>(null);
  const found = lines.filter(
    (line) => line.text.toLowerCase().includes(wanted.toLowerCase()) && (attempt === "" || line.attempt_id === attempt),
  );
  useEffect(() => {
    if (follows && element.current) element.current.scrollTop = element.current.scrollHeight;
  }, [follows, found.length]);
  return (
    <div class="stack close">
      <div class="row tools">
        <input
          type="search"
          aria-label="Search the log"
          placeholder="Search"
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
        {attempts.length > 1 ? (
          <select aria-label="Attempt" value={attempt} onChange={(event) => setAttempt(event.currentTarget.value)}>
            <option value="">all tries</option>
            {attempts.map((one) => (
              <option key={one.id} value={one.id}>
                try {one.number}
                {one.generation > 0 ? `, generation ${one.generation}` : ""}
              </option>
            ))}
          </select>
        ) : null}
        {live ? (
          <label class="check">
            <input type="checkbox" checked={follows} onChange={(event) => setFollows(event.currentTarget.checked)} />
            Follow
          </label>
        ) : null}
        <span class="small muted push" aria-live="polite">
          {wanted || attempt ? `${found.length} of ${counted(lines.length, "line")}` : counted(lines.length, "line")}
        </span>
        <CopyButton text={asText(found)} what="log" />
        <button
          type="button"
          class="button quiet tiny"
          onClick={() => save([asText(found)], `${id}.log`, "text/plain")}
        >
          Download
        </button>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys */}
      <section class="log" tabIndex={0} aria-label="Log lines" ref={element}>
        {found.length === 0 ? <p class="muted">No line has that.</p> : null}
        {found.map((line, at) => (
          <p key={at}>
            <time class="muted" dateTime={line.at}>
              {clock(Date.parse(line.at))}
            </time>
            <span>
              <Text>{line.text}</Text>
            </span>
          </p>
        ))}
      </section>
    </div>
  );
}

export function Logs({ id, live, attempts }: { id: string; live: boolean; attempts: Attempt[] }) {
  const logs = useResource<Schemas["Logs"]>(`/v1/jobs/${id}/logs`, live ? 2000 : 0);
  return (
    <Loaded of={logs}>
      {(data) =>
        data.items.length === 0 ? (
          <Empty says="Its handler has logged nothing.">
            <p>
              A handler logs with <code>cx.log</code>, a program on its standard error.
            </p>
          </Empty>
        ) : (
          <Lines lines={data.items} attempts={attempts} live={live} id={id} />
        )
      }
    </Loaded>
  );
}
