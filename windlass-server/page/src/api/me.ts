// Who looks, and what the server lets them do. What the page hides is for comfort; the server refuses all the same.

import { signal } from "@preact/signals";
import { ask, send, signedOut } from "./client.ts";
import { forget, setClock } from "./live.ts";

export interface Me {
  name?: string;
  role: "read" | "submit" | "produce" | "work" | "operate" | "admin";
  session: boolean;
  payloads_hidden: boolean;
  read_only: boolean;
}

export const me = signal<Me | undefined>(undefined);

/** Whether one may act on jobs, queues, workflows and schedules. */
export function mayOperate(): boolean {
  return me.value?.role === "operate" || me.value?.role === "admin";
}

/** Whether one may submit jobs. */
export function mayProduce(): boolean {
  return me.value !== undefined && me.value.role !== "read";
}

export async function meet(): Promise<void> {
  me.value = await ask<Me>("/v1/me");
  signedOut.value = false;
  await setClock();
}

export async function signIn(token: string): Promise<void> {
  await send("POST", "/session", { token });
  forget();
  await meet();
}

export async function signOut(): Promise<void> {
  await send("DELETE", "/session");
  forget();
  me.value = undefined;
  signedOut.value = true;
}
