// What people last did to something.

import type { Schemas } from "../api/client.ts";
import { useResource } from "../api/live.ts";
import { href } from "../router.ts";
import { Text } from "./text.tsx";
import { When } from "./time.tsx";

/** The acts on a target, newest first. */
export function useActs(target: string, limit = 5) {
  return useResource<Schemas["ActPage"]>(`/v1/acts?${new URLSearchParams({ target, limit: String(limit) })}`, 5000);
}

export function LastActs({ target }: { target: string }) {
  const acts = useActs(target);
  const items = acts.data?.items ?? [];
  if (items.length === 0) return null;
  return (
    <section class="card" aria-label="Last acts">
      <h2>Last acts</h2>
      <ul class="plain-list small">
        {items.map((act, place) => (
          <li key={place}>
            <Text>{act.act}</Text> <span class="muted">by</span> <Text>{act.by ?? "somebody unnamed"}</Text>,{" "}
            <When at={act.at} />
            {act.reason ? (
              <span class="muted">
                : <Text>{act.reason}</Text>
              </span>
            ) : null}
          </li>
        ))}
      </ul>
      <a class="small" href={href(`/acts?${new URLSearchParams({ target })}`)}>
        All of them
      </a>
    </section>
  );
}
