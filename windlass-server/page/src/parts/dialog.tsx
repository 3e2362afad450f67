// Dialogs: the browser's own, which keeps the focus in it and gives it back.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Refused } from "../api/client.ts";
import { say, Terminal } from "./copy.tsx";
import { Problem } from "./notice.tsx";

/** The dialog that is open, if one is. */
export const dialog = signal<ComponentChildren>(null);
/** What the last act came to, until it is put away. */
export const done = signal<ComponentChildren>(null);

export function closeDialog() {
  dialog.value = null;
}

export function tell(sentence: string, more?: ComponentChildren) {
  done.value = (
    <>
      <span>{sentence}</span>
      {more}
    </>
  );
  say(sentence);
}

interface DialogProps {
  title: string;
  children: ComponentChildren;
  onClose?: () => void;
}

export function Dialog({ title, children, onClose }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const name = useId();
  useEffect(() => {
    const shown = element.current;
    if (shown && !shown.open) shown.showModal();
    return () => shown?.close();
  }, []);
  return (
    <dialog ref={element} aria-labelledby={name} onClose={onClose ?? closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
        }}
      >
        <h2 id={name}>{title}</h2>
        {children}
      </form>
    </dialog>
  );
}

interface ActProps {
  title: string;
  /** What the act will do, in a sentence. */
  says: string;
  /** The word on the button. */
  verb: string;
  risky?: boolean;
  /** Whether a reason must be given; `undefined` for no reason at all. */
  reason?: "wanted" | "needed";
  /** What must be typed first, such as a name or a number. */
  typed?: string;
  /** The same as lines for a terminal, given the reason. */
  lines: (reason: string) => string[];
  act: (reason: string) => Promise<void>;
  children?: ComponentChildren;
  blocked?: boolean;
}

/** An act that says what it will do, shows itself as commands, and then does it. */
export function ActDialog(props: ActProps) {
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Refused>();
  const ready =
    !busy && !props.blocked && !(props.reason === "needed" && reason.trim() === "") && (props.typed ?? "") === typed;
  const go = async () => {
    setBusy(true);
    setProblem(undefined);
    try {
      await props.act(reason.trim());
      closeDialog();
    } catch (error) {
      setProblem(error instanceof Refused ? error : new Refused(0, { detail: String(error) }));
      setBusy(false);
    }
  };
  return (
    <Dialog title={props.title}>
      <p>{props.says}</p>
      {props.children}
      {props.reason ? (
        <label class="field">
          <span>Reason {props.reason === "needed" ? "(needed)" : "(kept with the act)"}</span>
          <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
      ) : null}
      {props.typed ? (
        <label class="field">
          <span>
            Type <code>{props.typed}</code> to go on
          </span>
          <input value={typed} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
      ) : null}
      <Terminal lines={props.lines(reason.trim())} />
      {problem ? <Problem problem={problem} /> : null}
      <div class="actions">
        <button type="button" class="button" onClick={closeDialog}>
          Cancel
        </button>
        <button type="submit" class={`button ${props.risky ? "risky" : "primary"}`} disabled={!ready} onClick={go}>
          {busy ? "Working…" : props.verb}
        </button>
      </div>
    </Dialog>
  );
}
