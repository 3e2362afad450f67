// A button that opens a small panel below it. Escape, or a click elsewhere, closes it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface MenuProps {
  word: string;
  children: ComponentChildren;
  tiny?: boolean;
}

export function Menu({ word, children, tiny }: MenuProps) {
  const [open, setOpen] = useState(false);
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (!element.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
    };
  }, [open]);
  const close = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    setOpen(false);
    element.current?.querySelector("button")?.focus();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape closes what is inside
    <div class="menu" ref={element} onKeyDown={close}>
      <button type="button" class={`button ${tiny ? "tiny" : ""}`} aria-expanded={open} onClick={() => setOpen(!open)}>
        {word} <span aria-hidden="true">▾</span>
      </button>
      {open ? <div class="menu-panel">{children}</div> : null}
    </div>
  );
}
