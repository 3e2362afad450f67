// A table: real rows and cells, a caption, keys to walk and pick, and cards in place of columns where it is narrow.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { cursorRow } from "./keys.ts";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
  narrow?: boolean;
  /** Whether it stands first, without its name, where columns do not fit. */
  lead?: boolean;
  sort?: "ascending" | "descending";
}

interface TableProps<T> {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  picked?: Set<string>;
  pick?: (id: string, range: boolean) => void;
  pickAll?: (all: boolean) => void;
  empty: ComponentChildren;
  head?: ComponentChildren;
  foot?: ComponentChildren;
  /** Whether rows keep their places while somebody points at them or has the focus in them. */
  steady?: boolean;
}

/** The rows as they were when the pointer or the focus came, each in its freshest form, and how many are new since. */
function useSteady<T>(rows: T[], id: (row: T) => string, steady: boolean) {
  const [held, setHeld] = useState<T[] | null>(null);
  if (!steady || held === null) return { rows, added: 0, hold: () => setHeld(rows), release: () => setHeld(null) };
  const fresh = new Map(rows.map((row) => [id(row), row]));
  const known = new Set(held.map(id));
  return {
    rows: held.map((row) => fresh.get(id(row)) ?? row),
    added: rows.filter((row) => !known.has(id(row))).length,
    hold: () => {},
    release: () => setHeld(null),
  };
}

/** From so many columns on, a table needs more room before it stands as one. */
const MANY = 7;
const [ROOM_REM, ROOM_MANY_REM] = [42, 64];

/** Whether columns do not fit: measured before anything is drawn, and against the size of the text. */
function useFold(columns: number) {
  const card = useRef<HTMLDivElement>(null);
  const [folded, setFolded] = useState(false);
  useLayoutEffect(() => {
    const element = card.current;
    if (!element) return;
    const look = () => {
      const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
      setFolded(element.clientWidth < rem * (columns >= MANY ? ROOM_MANY_REM : ROOM_REM));
    };
    look();
    const watch = new ResizeObserver(look);
    watch.observe(element);
    return () => watch.disconnect();
  }, [columns]);
  return { card, folded };
}

function classes<T>({ number, narrow, lead }: Column<T>): string {
  return [number && "number", narrow && "narrow", lead && "lead"].filter(Boolean).join(" ");
}

export function Table<T>(props: TableProps<T>) {
  const { columns, picked, pick, steady = false } = props;
  const { rows, added, hold, release } = useSteady(props.rows, props.id, steady);
  const body = useRef<HTMLTableSectionElement>(null);
  const { card, folded } = useFold(columns.length);
  const current = cursorRow.value;
  useEffect(() => {
    if (current) body.current?.querySelector("tr.current")?.scrollIntoView({ block: "nearest" });
  }, [current]);
  const head = props.head ? <div class="table-head">{props.head}</div> : null;
  if (rows.length === 0)
    return (
      <div class="table-card" ref={card}>
        {head}
        {props.empty}
      </div>
    );
  const all = picked !== undefined && rows.every((row) => picked.has(props.id(row)));
  return (
    <div
      ref={card}
      class={`table-card ${folded ? "folded" : ""}`}
      {...(steady ? { onPointerEnter: hold, onPointerLeave: release, onFocusIn: hold, onFocusOut: release } : {})}
    >
      {head}
      <table role="table">
        <caption>{props.caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {pick ? (
              <th role="columnheader" scope="col" class="narrow pick">
                <input
                  type="checkbox"
                  aria-label="Pick all rows shown"
                  checked={all}
                  onChange={(event) => props.pickAll?.(event.currentTarget.checked)}
                />
              </th>
            ) : null}
            {columns.map((column) => (
              <th key={column.name} role="columnheader" scope="col" class={classes(column)} aria-sort={column.sort}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup" ref={body}>
          {rows.map((row) => {
            const id = props.id(row);
            return (
              <tr
                key={id}
                role="row"
                data-row={id}
                class={`${current === id ? "current" : ""} ${picked?.has(id) ? "picked" : ""}`}
              >
                {pick ? (
                  <td role="cell" class="narrow pick">
                    <input
                      type="checkbox"
                      aria-label={`Pick ${id}`}
                      checked={picked?.has(id) ?? false}
                      onClick={(event) => pick(id, event.shiftKey)}
                    />
                  </td>
                ) : null}
                {columns.map((column) => (
                  <td key={column.name} role="cell" data-label={column.name} class={classes(column)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
      {props.foot || added > 0 ? (
        <div class="table-foot">
          {props.foot}
          {added > 0 ? <span class="push">{added} new; they come when you leave the list</span> : null}
        </div>
      ) : null}
    </div>
  );
}
