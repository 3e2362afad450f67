// Calls to the API: the page's only way to the server. A refusal is an error that carries the server's own words.

import { signal } from "@preact/signals";
import type { components } from "./types.ts";

export type Schemas = components["schemas"];
export type Problem = Schemas["Problem"];
export type State = Schemas["State"];
export type Job = Schemas["Job"];

/** The prefix under which a proxy shows the server; the entry carries it. */
export const base = document.querySelector<HTMLMetaElement>('meta[name="windlass-base"]')?.content ?? "";

/** Whether the server wants a token that this browser has not shown. */
export const signedOut = signal(false);

/** A call that was refused, or that did not get through (`status` 0). */
export class Refused extends Error {
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly requestId: string;

  constructor(status: number, problem: Partial<Problem>) {
    super(problem.detail ?? problem.title ?? `the server answered ${status}`);
    this.status = status;
    this.title = problem.title ?? (status === 0 ? "the server is away" : `answer ${status}`);
    this.detail = problem.detail ?? "";
    this.requestId = problem.request_id ?? "";
  }
}

export interface Asked {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** The answer to a call, once it is known to be a good one. */
export async function answer(path: string, asked: Asked = {}): Promise<Response> {
  const headers: Record<string, string> = { ...asked.headers };
  if (asked.body !== undefined) headers["content-type"] = "application/json";
  const init: RequestInit = { method: asked.method ?? "GET", headers, credentials: "same-origin", cache: "no-store" };
  if (asked.body !== undefined) init.body = typeof asked.body === "string" ? asked.body : JSON.stringify(asked.body);
  if (asked.signal) init.signal = asked.signal;
  let response: Response;
  try {
    response = await fetch(base + path, init);
  } catch (problem) {
    if (asked.signal?.aborted) throw problem;
    throw new Refused(0, { title: "the server is away", detail: "no answer came from the server" });
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401) signedOut.value = true;
  throw new Refused(response.status, problem as Partial<Problem>);
}

/** The JSON that a call answers. */
export async function ask<T>(path: string, asked: Asked = {}): Promise<T> {
  const response = await answer(path, asked);
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/** Sends something. */
export function send<T = unknown>(method: string, path: string, body?: unknown, headers?: Record<string, string>) {
  const asked: Asked = { method };
  if (body !== undefined) asked.body = body;
  if (headers) asked.headers = headers;
  return ask<T>(path, asked);
}

/** A name as one part of a path. A URL cannot hold the names `.` and `..`; the API takes a tilde in front. */
export function part(name: string): string {
  const escaped = encodeURIComponent(name);
  return /^\.{1,2}$/.test(name) || name.startsWith("~") ? `~${escaped}` : escaped;
}
