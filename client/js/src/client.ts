/**
 * The client: starts the daemon, sends requests, and gives answers and events to those who wait.
 *
 * Answers are matched by id, events by the id of the request that has begun them. The daemon ends
 * with the client, and its commands with the daemon.
 */

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";

import { DaemonExited, ShelldError } from "./errors.js";
import { Events } from "./events.js";
import { Job } from "./job.js";
import type {
  BackgroundResult,
  BashOutputResult,
  BashParams,
  BashResult,
  KillShellResult,
  Methods,
  ShellEvent,
  SubscribeParams,
} from "./types.js";

export interface ClientOptions {
  /** The program and its arguments; any that end in a shelld. Default: `["shelld"]`. */
  command?: readonly string[];
  /** Options of the daemon. */
  args?: readonly string[];
  cwd?: string;
  env?: NodeJS.ProcessEnv;
}

/** Options of a command, besides its text. */
export type BashOptions = Omit<BashParams, "command" | "run_in_background" | "notify" | "dry_run">;

interface Pending {
  resolve(result: unknown): void;
  reject(error: Error): void;
}

interface Message {
  id?: number | null;
  method?: string;
  params?: Record<string, unknown>;
  result?: unknown;
  error?: { code: number; message: string; data?: Record<string, unknown> };
}

const STDERR_TAIL = 8192;
// The daemon promises to end within 2 s, or 5 s with a thousand shells.
const CLOSE_TIMEOUT_MS = 6_000;

export class Client {
  #child: ChildProcessWithoutNullStreams;
  #nextId = 1;
  #pending = new Map<number, Pending>();
  #listeners = new Map<number, Events>();
  // The events that end with the shell.
  #jobs = new WeakSet<Events>();
  // The beginning of a line whose end has not come.
  #parts: Buffer[] = [];
  #stderr = "";
  #failure: DaemonExited | null = null;
  #ended: Promise<void>;

  constructor(options: ClientOptions = {}) {
    const [program, ...words] = [...(options.command ?? ["shelld"]), ...(options.args ?? [])];
    if (program === undefined) throw new TypeError("command must have at least one word");
    // A Ctrl-C at the terminal is for this program to handle, not for the daemon.
    const { cwd, env } = options;
    this.#child = spawn(program, words, { cwd, env, stdio: "pipe", detached: true });
    this.#child.stdout.on("data", (data: Buffer) => this.#receive(data));
    this.#child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_TAIL);
    });
    // A write to a daemon that is gone: "close" says the rest.
    this.#child.stdin.on("error", () => {});
    this.#ended = new Promise((resolve) => {
      this.#child.on("error", (error) => {
        this.#fail(`cannot start ${program}: ${error.message}`);
        resolve();
      });
      this.#child.on("close", (code, signal) => {
        const how = signal === null ? `exited with code ${code}` : `was killed by ${signal}`;
        this.#fail(`the daemon ${how}`);
        resolve();
      });
    });
  }

  /** Call any method. Aborting `signal` cancels the request, which then fails with "cancelled". */
  call<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
    { signal }: { signal?: AbortSignal } = {},
  ): Promise<Methods[M]["result"]> {
    return this.#request(this.#nextId++, method, params, signal);
  }

  /** Run a command in the foreground. A command that fails is a result. */
  async bash(
    command: string,
    options: BashOptions & { signal?: AbortSignal } = {},
  ): Promise<BashResult> {
    const { signal, ...params } = options;
    const given = signal === undefined ? {} : { signal };
    return (await this.call("bash", { ...params, command }, given)) as BashResult;
  }

  /** Return a shell's output since the last such call, at once or after up to `wait` ms. */
  bashOutput(bashId: string, wait = 0): Promise<BashOutputResult> {
    return this.call("bash_output", { bash_id: bashId, wait });
  }

  /** End a shell with everything that it has started. */
  killShell(shellId: string): Promise<KillShellResult> {
    return this.call("kill_shell", { shell_id: shellId });
  }

  /** Run a command in the background. */
  async start(command: string, options: BashOptions = {}): Promise<Job> {
    const id = this.#nextId++;
    let subscription: string | undefined;
    const events = this.#listen(id, () => subscription);
    this.#jobs.add(events);
    try {
      const notify: BashParams["notify"] = ["output", "prompt", "exit"];
      const params = { ...options, command, notify, run_in_background: true };
      const started = (await this.#request(id, "bash", params)) as BackgroundResult;
      subscription = started.subscription ?? undefined;
      return new Job(this, started.bash_id, started.pid, events);
    } catch (error) {
      this.#listeners.delete(id);
      throw error;
    }
  }

  /** Receive the events of a shell, a session or all shells. By default: output and ends. */
  async subscribe(params: SubscribeParams = {}): Promise<Events> {
    const id = this.#nextId++;
    let subscription: string | undefined;
    const events = this.#listen(id, () => subscription);
    try {
      const given: SubscribeParams = { ...params };
      if (params.subscription === undefined) given.events ??= ["exit", "output"];
      const result = await this.#request(id, "subscribe", given);
      subscription = result.subscription;
      return events;
    } catch (error) {
      this.#listeners.delete(id);
      throw error;
    }
  }

  /** End the daemon and all its commands. */
  async close(): Promise<void> {
    this.#failure ??= new DaemonExited("the client is closed", "");
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), CLOSE_TIMEOUT_MS);
    await this.#ended;
    clearTimeout(timer);
  }

  #request<M extends keyof Methods>(
    id: number,
    method: M,
    params: Methods[M]["params"],
    signal?: AbortSignal,
  ): Promise<Methods[M]["result"]> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== null) throw this.#failure;
      signal?.throwIfAborted();
      const abort = () => this.#send({ method: "$/cancelRequest", params: { id } });
      const settle = () => signal?.removeEventListener("abort", abort);
      signal?.addEventListener("abort", abort, { once: true });
      this.#pending.set(id, {
        resolve: (result) => {
          settle();
          resolve(result as Methods[M]["result"]);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      });
      this.#send({ id, method, params: params as unknown as Record<string, unknown> });
    });
  }

  #send(message: Message): void {
    this.#child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  #listen(id: number, subscription: () => string | undefined): Events {
    const events = new Events(() => {
      this.#listeners.delete(id);
      const name = subscription();
      if (name === undefined || this.#failure !== null) return;
      // The daemon may have ended it, or may be ending itself.
      this.call("unsubscribe", { subscription: name }).catch(() => {});
    });
    this.#listeners.set(id, events);
    return events;
  }

  #receive(data: Buffer): void {
    let start = 0;
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
      this.#parts.push(data.subarray(start, end));
      const line = Buffer.concat(this.#parts).toString();
      this.#parts = [];
      start = end + 1;
      this.#take(line);
    }
    this.#parts.push(data.subarray(start));
  }

  #take(line: string): void {
    let message: Message;
    try {
      message = JSON.parse(line) as Message;
    } catch {
      // Something printed before the daemon started, as ssh and login shells do.
      return;
    }
    if (message.method !== undefined) {
      this.#notify(message.method, message.params ?? {});
    } else if (typeof message.id === "number") {
      const pending = this.#pending.get(message.id);
      this.#pending.delete(message.id);
      if (message.error === undefined) pending?.resolve(message.result);
      else {
        const { code, message: text, data } = message.error;
        pending?.reject(new ShelldError(text, code, data));
      }
    }
  }

  #notify(method: string, params: Record<string, unknown>): void {
    const id = params["requestId"];
    const events = typeof id === "number" ? this.#listeners.get(id) : undefined;
    if (events === undefined) return;
    events.put({ ...params, event: method } as unknown as ShellEvent);
    // A job has no event after this one. A subscription may be for several shells.
    if (method === "shell/exited" && this.#jobs.has(events)) events.finish();
  }

  #fail(message: string): void {
    this.#failure ??= new DaemonExited(message, this.#stderr.trim());
    for (const pending of this.#pending.values()) pending.reject(this.#failure);
    for (const events of this.#listeners.values()) events.finish(this.#failure);
    this.#pending.clear();
    this.#listeners.clear();
  }
}
