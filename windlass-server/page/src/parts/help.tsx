// The list of keys.

import { Fragment } from "preact";
import { Dialog } from "./dialog.tsx";
import { helpOpen, PLACES } from "./keys.ts";

function closeHelp() {
  helpOpen.value = false;
}

export function Help() {
  const keys: [string, string][] = [
    ["?", "this list"],
    ["/", "search"],
    [".", "pause, go on"],
    ["Ctrl K", "go to anything"],
    ["t", "theme"],
    ["u", "local times, UTC"],
    ["j  k", "next, previous row"],
    ["Enter", "open the row"],
    ["x", "pick the row; Shift+x up to it"],
    ["r  c", "requeue, cancel what is picked"],
    ["y", "copy the row's id"],
    ...PLACES.map(([key, , word]): [string, string] => [`g ${key}`, word]),
  ];
  return (
    <Dialog title="Keys" onClose={closeHelp}>
      <dl class="facts">
        {keys.map(([key, word]) => (
          <Fragment key={key}>
            <dt>
              {key.split(/\s+/).map((one) => (
                <Fragment key={one}>
                  <kbd>{one}</kbd>{" "}
                </Fragment>
              ))}
            </dt>
            <dd>{word}</dd>
          </Fragment>
        ))}
      </dl>
      <p class="small muted">Single letters can be switched off under Server.</p>
      <div class="actions">
        <button type="button" class="button primary" onClick={closeHelp}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
