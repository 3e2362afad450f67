// What needs somebody, worst first, each with what helps.

import { part, type Schemas, send } from "../api/client.ts";
import type { Resource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { href } from "../router.ts";
import { tell } from "./dialog.tsx";
import { StateIcon } from "./icon.tsx";
import { Loaded } from "./notice.tsx";
import { Text } from "./text.tsx";
import { When } from "./time.tsx";

type Item = Schemas["AttentionItem"];

function Helps({ item, reload }: { item: Item; reload: () => void }) {
  if (item.kind === "paused_with_work" && item.queue && mayOperate()) {
    const queue = item.queue;
    const resume = async () => {
      await send("POST", `/v1/queues/${part(queue)}/resume`);
      reload();
      tell(`${queue} goes on`);
    };
    return (
      <button type="button" class="button tiny" onClick={() => void resume()}>
        Resume
      </button>
    );
  }
  if (item.kind === "no_worker") return <a href={href("/workers")}>Workers</a>;
  return null;
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
                <li key={`${item.kind} ${item.queue ?? item.schedule}`}>
                  <strong class={item.severity === "bad" ? "danger" : "retrying"}>
                    {item.severity === "bad" ? "Bad" : "Warning"}
                  </strong>
                  <a
                    href={href(
                      item.queue
                        ? `/queues/${encodeURIComponent(item.queue)}`
                        : `/schedules/${encodeURIComponent(item.schedule ?? "")}`,
                    )}
                  >
                    <Text>{item.text}</Text>
                  </a>
                  {item.since ? (
                    <span class="small muted">
                      since <When at={item.since} />
                    </span>
                  ) : null}
                  <Helps item={item} reload={found.reload} />
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </section>
  );
}
