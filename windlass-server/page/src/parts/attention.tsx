// What needs somebody, worst first, each with where to look and what helps.

import { part, type Schemas, send } from "../api/client.ts";
import type { Resource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { href } from "../router.ts";
import { bulk } from "./bulk.tsx";
import { CopyButton } from "./copy.tsx";
import { tell } from "./dialog.tsx";
import { Icon, StateIcon } from "./icon.tsx";
import { Loaded } from "./notice.tsx";
import { Text } from "./text.tsx";
import { When } from "./time.tsx";

type Item = Schemas["AttentionItem"];

/** The act that fits, as a button: what only goes on again needs no dialog. */
function Act({ item, reload }: { item: Item; reload: () => void }) {
  const { queue, schedule, fingerprint } = item;
  if (!mayOperate()) return null;
  const resume = async (path: string, name: string) => {
    await send("POST", path);
    reload();
    tell(`${name} goes on`);
  };
  if (item.kind === "paused_with_work" && (queue || schedule)) {
    const [path, name] = queue
      ? [`/v1/queues/${part(queue)}/resume`, queue]
      : [`/v1/schedules/${part(schedule!)}/resume`, schedule!];
    return (
      <button type="button" class="button tiny" onClick={() => void resume(path, name)}>
        Resume
      </button>
    );
  }
  if (item.kind === "failing" && fingerprint)
    return (
      <button
        type="button"
        class="button tiny"
        onClick={() =>
          bulk({ action: "requeue", query: new URLSearchParams({ fingerprint }), title: "Requeue the group" })
        }
      >
        Requeue the group
      </button>
    );
  return null;
}

function Row({ item, reload }: { item: Item; reload: () => void }) {
  const bad = item.severity === "bad";
  return (
    <li>
      <span class={`badge ${bad ? "danger" : "retrying"}`}>
        <Icon name="errors" />
        {bad ? "Urgent" : "Warning"}
      </span>
      <a href={href(item.link)}>
        <Text>{item.text}</Text>
      </a>
      {item.since ? (
        <span class="small muted">
          since <When at={item.since} />
        </span>
      ) : null}
      <span class="row push">
        <Act item={item} reload={reload} />
        {item.act ? <CopyButton text={item.act} what={`command: ${item.act}`} word="Command" /> : null}
      </span>
    </li>
  );
}

export function Attention({ of: found }: { of: Resource<Schemas["Attention"]> }) {
  return (
    <section class="card" aria-label="Attention">
      <h2>Attention</h2>
      <Loaded of={found}>
        {(data) =>
          data.items.length === 0 ? (
            <p class="badge completed calm">
              <StateIcon state="completed" /> Nothing needs you.
            </p>
          ) : (
            <ul class="attention">
              {data.items.map((item) => (
                <Row key={`${item.kind} ${item.text}`} item={item} reload={found.reload} />
              ))}
            </ul>
          )
        }
      </Loaded>
    </section>
  );
}
