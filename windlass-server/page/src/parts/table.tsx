// A table: real rows and cells, a caption, keys to walk and pick, and cards in place of columns where it is narrow.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { cursorRow } from "./keys.ts";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
  narrow?: boolean;
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
  foot?: ComponentChildren;
}

export function Table<T>(props: TableProps<T>) {
  const { rows, columns, picked, pick } = props;
  const body = useRef<HTMLTableSectionElement>(null);
  const current = cursorRow.value;
  useEffect(() => {
    if (current) body.current?.querySelector("tr.current")?.scrollIntoView({ block: "nearest" });
  }, [current]);
  if (rows.length === 0) return <div class="table-card">{props.empty}</div>;
  const all = picked !== undefined && rows.every((row) => picked.has(props.id(row)));
  return (
    <div class="table-card folds">
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
              <th
                key={column.name}
                role="columnheader"
                scope="col"
                class={`${column.number ? "number" : ""} ${column.narrow ? "narrow" : ""}`}
                aria-sort={column.sort}
              >
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
                  <td
                    key={column.name}
                    role="cell"
                    data-label={column.name}
                    class={`${column.number ? "number" : ""} ${column.narrow ? "narrow" : ""}`}
                  >
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
      {props.foot ? <div class="table-foot">{props.foot}</div> : null}
    </div>
  );
}
