/**
 * Starts one daemon, sends requests to it, and passes its answers and events to their readers.
 *
 * An answer belongs to the request with its id. An event belongs to the request that has begun the
 * subscription. The daemon ends with the connection, and its commands with the daemon. Every wait
 * ends with the daemon's answer, or with the daemon's end.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";

import { DaemonExited, ShelldError } from "./errors.js";
import { Events } from "./events.js";
import { checkJson } from "./json.js";
import { eventIn, type Message, messageAfterBanner, messageIn } from "./messages.js";
import { Readers } from "./readers.js";
import { onAbort, throwIfAborted } from "./signals.js";
import type { Methods, SubscribeParams, SubscribeResult } from "./types.js";

export interface ConnectionOptions {
  /** A command line that starts a shelld. Default: `["shelld"]`. */
  command?: readonly string[];
  /** Options of the daemon. */
  args?: readonly string[];
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  /** The time for the daemon's first answer, in milliseconds. Default: 10,000. May be Infinity. */
  startTimeout?: number;
}

export interface RequestOptions<Result> {
  signal?: AbortSignal | undefined;
  events?: Events;
  note?: Note<Result> | undefined;
}

/** Learns what becomes of a request, before anything that arrives later is handled. */
export interface Note<Result> {
  sent(): void;
  result(result: Result): void;
  error(error: unknown): void;
}

interface Pending {
  /** The size of the request's message in bytes. */
  size: number;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

const STDERR_TAIL = 8192;
const START_TIMEOUT_MS = 10_000;
// Node fires a timer at once if its time is longer. This is about 25 days.
const LONGEST_TIMER_MS = 2 ** 31 - 1;
// The maximum size of other text before the first answer, such as the banner of ssh.
const MAX_BANNER = 64 * 1024;
// An answer has at most two streams of 16 MiB, and a byte of a stream can take six bytes in JSON.
const MAX_MESSAGE = 256 * 1024 * 1024;
// The daemon promises to end within 2 s, or 5 s with a thousand shells.
const CLOSE_TIMEOUT_MS = 6_000;
const TARGET_LOST = 1011;
// How long to wait for the remaining output. After the daemon's end, a child of a wrapper, such as
// ssh, may hold the pipes open. A daemon that has closed one of its pipes will probably end.
const LAST_WORDS_MS = 1_000;

export class Connection {
  // The child has no streams if there were no descriptors for them.
  #child: ChildProcess;
  #nextId = 1;
  #pending = new Map<number, Pending>();
  #listeners = new Map<number, Events>();
  #readers = new Readers();
  // The beginning of a line whose end has not come, and its size.
  #parts: Buffer[] = [];
  #size = 0;
  #hasAnswered = false;
  #banner = 0;
  #stderr = "";
  #failure: DaemonExited | null = null;
  #ended: Promise<void>;

  constructor(options: ConnectionOptions) {
    const command = listOfWords("command", options.command ?? ["shelld"]);
    const [program, ...words] = [...command, ...listOfWords("args", options.args ?? [])];
    if (program === undefined) throw new TypeError("command must have at least one word");
    // This program handles a Ctrl-C at the terminal, so the daemon must not get it.
    const { cwd, env, startTimeout = START_TIMEOUT_MS } = options;
    if (!(startTimeout > 0)) throw new RangeError("startTimeout must be a positive number");
    const child = spawn(program, words, { cwd, env, stdio: "pipe", detached: true });
    this.#child = child;
    child.stdout?.on("data", (data: Buffer) => this.#receive(data));
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_TAIL);
    });
    // If the daemon has ended, the event "close" follows. But the daemon may also go on without its
    // pipes.
    const closed = (pipe: string) => () => {
      const lose = () => this.#failure ?? this.#giveUp(`the daemon closed its ${pipe}`);
      setTimeout(lose, LAST_WORDS_MS).unref();
    };
    child.stdin?.on("error", closed("input"));
    child.stdout?.on("end", closed("output"));
    const timer = setTimeout(
      () => this.#giveUp(`the daemon gave no answer within ${startTimeout} ms`),
      Math.min(startTimeout, LONGEST_TIMER_MS),
    );
    this.#ended = new Promise((resolve) => {
      const end = (message: string) => {
        clearTimeout(timer);
        this.#fail(message);
        resolve();
      };
      child.on("error", (error) => {
        // Node also emits this event for a signal that could not be sent.
        if (child.pid !== undefined) return;
        // The system gives the same error for a missing directory as for a missing program.
        const isMissing = cwd !== undefined && !existsSync(cwd);
        const why = isMissing ? `there is no directory ${cwd}` : error.message;
        end(`cannot start ${program}: ${why}`);
      });
      child.on("exit", () => {
        setTimeout(() => {
          child.stdout?.destroy();
          child.stderr?.destroy();
        }, LAST_WORDS_MS).unref();
      });
      child.on("close", (code, signal) => {
        const how = signal === null ? `exited with code ${code}` : `was killed by ${signal}`;
        end(`the daemon ${how}`);
      });
    });
    this.request("ping", {}).then(
      () => clearTimeout(timer),
      // If the ping fails, the other requests fail as well.
      () => {},
    );
  }

  /** The reason why no more answers come, or null. */
  get failure(): DaemonExited | null {
    return this.#failure;
  }

  /** Send a request. Its events go to `events`. Rejects with `ShelldError`. */
  request<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
    { signal, events, note }: RequestOptions<Methods[M]["result"]> = {},
  ): Promise<Methods[M]["result"]> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== null) throw this.#failure;
      throwIfAborted(signal);
      const id = this.#nextId++;
      // Check the params first, because the check may throw.
      checkJson(params);
      const frame = framed({ id, method, params });
      const abort = () => this.#send({ method: "$/cancelRequest", params: { id } });
      const revoke = signal ? onAbort(signal, abort) : null;
      const { subscription } = Object(params) as SubscribeParams;
      const continued = (method === "subscribe" ? subscription : null) ?? undefined;
      if (continued !== undefined) this.#readers.expect(continued);
      const settle = () => {
        revoke?.();
        if (continued !== undefined && this.#readers.answered(continued)) {
          this.#unsubscribe(continued);
        }
      };
      this.#pending.set(id, {
        size: frame.length,
        resolve: (result) => {
          note?.result(result as Methods[M]["result"]);
          // Register the reader now, because the events may come in the same read as the answer.
          const name = subscriptionIn(result);
          if (name !== null) this.#begin(id, name, events);
          if (name !== null && method === "subscribe") {
            events?.begin(result as SubscribeResult, params as SubscribeParams);
          }
          settle();
          if (name === null && method === "subscribe") {
            reject(new ShelldError("the answer names no subscription"));
          }
          resolve(result as Methods[M]["result"]);
        },
        reject: (error) => {
          note?.error(error);
          settle();
          reject(error);
        },
      });
      if (events !== undefined) this.#listeners.set(id, events);
      this.#child.stdin?.write(frame);
      note?.sent();
    });
  }

  #send(message: object): void {
    this.#child.stdin?.write(framed(message));
  }

  /** Record who reads the subscription that a request has begun or continued. */
  #begin(id: number, name: string, events: Events | undefined): void {
    if (events === undefined || this.#listeners.get(id) === events) {
      this.#readers.claim(name, events);
    } else {
      // The reader has left before the answer came.
      this.#unsubscribe(name);
    }
  }

  /** Give no more events to a queue, and end the subscriptions that it reads. */
  forget(events: Events): void {
    for (const [id, each] of this.#listeners) if (each === events) this.#listeners.delete(id);
    for (const name of this.#readers.leave(events)) this.#unsubscribe(name);
  }

  #unsubscribe(subscription: string): void {
    if (this.#failure !== null) return;
    // Ignore errors, because the subscription or the daemon may have ended.
    this.request("unsubscribe", { subscription }).catch(() => {});
  }

  /** End the daemon and all its commands. Calls that have no answer get `DaemonExited`. */
  async close(): Promise<void> {
    this.#failure ??= new DaemonExited("the client is closed", "");
    this.#child.stdin?.end();
    const timer = setTimeout(() => this.#kill(), CLOSE_TIMEOUT_MS);
    await this.#ended;
    clearTimeout(timer);
  }

  #receive(data: Buffer): void {
    let start = 0;
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
      this.#keep(data.subarray(start, end));
      if (this.#size > MAX_MESSAGE) break;
      const line = Buffer.concat(this.#parts).toString();
      this.#parts = [];
      this.#size = 0;
      start = end + 1;
      this.#take(line);
    }
    this.#keep(data.subarray(start));
    if (this.#size > MAX_MESSAGE) {
      this.#parts = [];
      this.#giveUp(`the daemon wrote a message of more than ${MAX_MESSAGE} bytes`);
    }
    if (this.#hasAnswered) return;
    this.#banner += data.length;
    if (this.#banner > MAX_BANNER) {
      this.#parts = [];
      this.#giveUp("the program is not shelld: it writes other text");
    }
  }

  #keep(part: Buffer): void {
    this.#parts.push(part);
    this.#size += part.length;
  }

  #take(line: string): void {
    // Before the first answer, ssh or a login shell may have written text, even on the answer's
    // line.
    const message = this.#hasAnswered ? messageIn(line) : messageAfterBanner(line);
    if (message === null) {
      if (this.#hasAnswered && line.trim()) {
        this.#giveUp("the daemon wrote something else than messages");
      }
    } else if (message.method !== undefined) {
      this.#takeNotification(message.id, message.method, message.params);
    } else if (message.id !== null) {
      this.#hasAnswered = true;
      const pending = this.#pending.get(message.id);
      this.#pending.delete(message.id);
      if (message.error === undefined) pending?.resolve(message.result);
      else {
        const { code, message: text, data } = message.error;
        pending?.reject(new ShelldError(text, code, data));
      }
    } else if (message.error !== undefined) {
      this.#takeNameless(message.error);
    }
  }

  /** Handle an error without an id. The daemon sends it if it could not read a request. */
  #takeNameless({ message, code, data }: NonNullable<Message["error"]>): void {
    const limit = data["max_message_bytes"];
    if (typeof limit !== "number") {
      this.#giveUp(`the daemon could not read a request: ${message}`);
      return;
    }
    for (const [id, pending] of this.#pending) {
      if (pending.size <= limit) continue;
      this.#pending.delete(id);
      pending.reject(new ShelldError(message, code, data));
    }
  }

  #takeNotification(id: number | null, method: string, params: Record<string, unknown>): void {
    if (id !== null && this.#pending.has(id)) {
      this.#giveUp("the program echoes what it reads, so it is not shelld");
      return;
    }
    if (method === "shell/lost") this.#takeLost(params);
    if (method === "shell/over") this.#listeners.get(Number(params["requestId"]))?.finish();
    const event = eventIn(method, params);
    if (event !== null && typeof event.requestId === "number") {
      this.#listeners.get(event.requestId)?.put(event);
    }
  }

  /** End the reader of a subscription whose target is lost. */
  #takeLost({ subscription, requestId, target, message }: Record<string, unknown>): void {
    this.#readers.lost(String(subscription));
    const data = { kind: "target_lost", target, maybeStarted: true, text: "" };
    this.#listeners.get(Number(requestId))?.finish(new ShelldError(String(message), TARGET_LOST, data));
  }

  #giveUp(message: string): void {
    this.#fail(message);
    this.#kill();
    // The daemon may go on writing without end, and nobody needs this output.
    this.#child.stdout?.destroy();
    this.#child.stderr?.destroy();
  }

  #kill(): void {
    const { pid, exitCode, signalCode } = this.#child;
    if (pid === undefined || exitCode !== null || signalCode !== null) return;
    try {
      // Kill the child's whole process group, because the child may be a wrapper, such as a shell.
      process.kill(-pid, "SIGKILL");
    } catch {
      // The child has just ended by itself.
      return;
    }
  }

  #fail(message: string): void {
    this.#failure ??= new DaemonExited(message, this.#stderr.trim());
    for (const pending of this.#pending.values()) pending.reject(this.#failure);
    for (const events of this.#listeners.values()) events.finish(this.#failure);
    this.#pending.clear();
    this.#listeners.clear();
  }
}

/** Throws a `TypeError` for anything but a list of words, such as a command line. */
function listOfWords(name: string, words: readonly string[]): readonly string[] {
  if (Array.isArray(words) && words.every((word) => typeof word === "string")) return words;
  throw new TypeError(`${name} must be a list of words`);
}

function subscriptionIn(result: unknown): string | null {
  const { subscription } = Object(result) as { subscription?: unknown };
  return typeof subscription === "string" && subscription ? subscription : null;
}

function framed(message: object): Buffer {
  return Buffer.from(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}
