/**
 * Decodes the lines of a peer into messages. Pure. The members of a decoded message always have the
 * right types, whatever the peer sends, so other code need not check them.
 */

import type { ShellEvent } from "./types.js";

export interface Message {
  id: number | null;
  /** Only a notification has a method. */
  method?: string;
  params: Record<string, unknown>;
  result?: unknown;
  error?: { code: number; message: string; data: Record<string, unknown> };
}

// The beginning of the daemon's messages.
const MESSAGE_START = '{"jsonrpc":"2.0"';
// The members that the client needs in each event.
const NUMBERS: Record<string, readonly string[]> = {
  "shell/output": ["start", "end", "dropped", "skipped"],
  "shell/exited": ["stdoutBytes", "stderrBytes"],
};

const TELLING_LEFTOVER: readonly string[] = ["shell/exited", "shell/leftover"];

/** Return the message at the end of a line that may begin with a banner without a line end. */
export function messageAfterBanner(line: string): Message | null {
  return messageIn(line.slice(Math.max(0, line.lastIndexOf(MESSAGE_START))));
}

/** Return the message of a line, or null if the line is not a message. */
export function messageIn(line: string): Message | null {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return null;
  }
  if (!isObject(value) || value["jsonrpc"] !== "2.0") return null;
  const { id = null, method, params, result, error = null } = value;
  if (id !== null && !Number.isInteger(id)) return null;
  const message: Message = { id: id as number | null, params: isObject(params) ? params : {} };
  if (method !== undefined) return typeof method === "string" ? { ...message, method } : null;
  // Some programs send "error": null beside a result.
  if (error === null) return id === null || result === undefined ? null : { ...message, result };
  if (!isObject(error)) return null;
  const { code, message: text, data } = error;
  if (typeof code !== "number" || typeof text !== "string") return null;
  return { ...message, error: { code, message: text, data: isObject(data) ? data : {} } };
}

/**
 * Return the event of a notification, or null if it is not an event, or lacks a necessary member.
 */
export function eventIn(method: string, params: Record<string, unknown>): ShellEvent | null {
  const isNumber = (name: string) => typeof params[name] === "number";
  if (!method.startsWith("shell/") || !isNumber("seq")) return null;
  if (!(NUMBERS[method] ?? []).every(isNumber)) return null;
  const { stream, text, leftover } = params;
  if (TELLING_LEFTOVER.includes(method) && !Array.isArray(leftover)) return null;
  const isOutput = typeof text === "string" && (stream === "stdout" || stream === "stderr");
  if (method === "shell/output" && !isOutput) return null;
  return { ...params, event: method } as unknown as ShellEvent;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
