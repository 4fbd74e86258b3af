/**
 * Provides the methods of the daemon. On request, replaces a daemon that has died with a new
 * daemon.
 */

import { Connection, type ConnectionOptions, type Note } from "./connection.js";
import type { DaemonExited } from "./errors.js";
import { Events } from "./events.js";
import { Job } from "./job.js";
import { copyOf } from "./json.js";
import { Memory } from "./memory.js";
import { backgroundResult } from "./results.js";
import { signalIn, throwIfAborted, unlessAborted } from "./signals.js";
import { Stream } from "./stream.js";
import type {
  BashOutputResult,
  BashParams,
  BashResult,
  KillShellResult,
  Methods,
  SubscribeParams,
} from "./types.js";

export interface ClientOptions extends ConnectionOptions {
  /**
   * If true, the first call after the death of a daemon starts a new daemon, with the same targets
   * and the same configuration of sessions. Calls under way fail. Shells, directories and variables
   * are lost.
   */
  restart?: boolean;
  /**
   * If true, a new daemon creates the sessions in which `bash` and `stream` have run commands again,
   * each in its last directory. Sessions at targets are lost.
   */
  keepDirectories?: boolean;
  /**
   * Called once for each new daemon, before the daemon takes calls. `cause` says how the last
   * daemon ended, and `directories` maps each session that was created again to its directory. An
   * exception becomes a warning of the process, and so does a rejection of a promise that this
   * function returns.
   */
  onRestart?: (
    cause: DaemonExited,
    directories: ReadonlyMap<string, string>,
  ) => void | Promise<void>;
}

/** Options of a command, besides its text. */
export type BashOptions = Omit<BashParams, "command" | "run_in_background" | "notify" | "dry_run">;

export class Client implements AsyncDisposable {
  #options: ClientOptions;
  #connection: Connection;
  // The promise of the next daemon's connection while a daemon is replaced. `#cause` says how the
  // last daemon ended.
  #replacement: Promise<Connection> | null = null;
  #cause: DaemonExited | null = null;
  #memory = new Memory();
  #isClosed = false;

  constructor(given?: ClientOptions | null) {
    const options = optionsIn(given);
    if (!options.restart && (options.keepDirectories || options.onRestart)) {
      throw new TypeError("keepDirectories and onRestart need restart: true");
    }
    this.#options = options;
    this.#connection = new Connection(options);
  }

  /**
   * Call any method. Aborting `signal` cancels the request, which then fails with "cancelled". A
   * signal that is aborted already prevents the request.
   */
  async call<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
    options: { signal?: AbortSignal | undefined } | null = {},
  ): Promise<Methods[M]["result"]> {
    const signal = signalIn(optionsIn(options));
    // The caller may change its params before the answer comes, or before a later restart.
    const given = this.#options.restart
      ? this.#memory.withTarget(method, copyOf(params))
      : params;
    // An aborted call must not wait for another daemon, and must not start one.
    throwIfAborted(signal);
    const ready = this.#ready();
    // If no restart is necessary, the request is sent before this method returns.
    const connection = ready instanceof Connection ? ready : await unlessAborted(ready, signal);
    return connection.request(method, given, { signal, note: this.#noteOf(method, given) });
  }

  /** Run a command in the foreground. The promise also resolves if the command fails. */
  async bash(
    command: string,
    options: (BashOptions & { signal?: AbortSignal }) | null = {},
  ): Promise<BashResult> {
    const { signal, ...params } = optionsIn(options);
    return (await this.call("bash", { ...params, command }, { signal })) as BashResult;
  }

  /** Run a command in the foreground. Iterating yields its output as it comes. */
  stream(command: string, options: (BashOptions & { signal?: AbortSignal }) | null = {}): Stream {
    const { signal: _, ...params } = optionsIn(options);
    const signal = signalIn(options);
    let given: BashParams = { ...params, command, notify: ["output", "exit"] };
    let ready: Promise<Connection>;
    try {
      // The caller may change its options before the request is sent.
      given = this.#memory.withTarget("bash", copyOf(given));
      ready = this.#whenReady(signal);
    } catch (error) {
      ready = Promise.reject(error);
    }
    return new Stream(ready, given, this.#noteOf("bash", given), signal);
  }

  /**
   * Return a shell's output since the last call of this method, at once or after up to `wait` ms.
   */
  bashOutput(bashId: string, wait = 0): Promise<BashOutputResult> {
    return this.call("bash_output", { bash_id: bashId, wait });
  }

  /** End a shell with everything that it has started. */
  killShell(shellId: string): Promise<KillShellResult> {
    return this.call("kill_shell", { shell_id: shellId });
  }

  /** Run a command in the background. */
  async start(command: string, given?: BashOptions | null): Promise<Job> {
    // Copy the options for the same reason as in `stream`.
    const options = copyOf(optionsIn(given));
    const connection = await this.#ready();
    const wanted = { ...options, command, run_in_background: true };
    const params = this.#memory.withTarget("bash", wanted);
    const note = this.#noteOf("bash", params);
    const started = backgroundResult(await connection.request("bash", params, { note }));
    const strip = options.strip_ansi === undefined ? {} : { strip_ansi: options.strip_ansi };
    return new Job(connection, started, strip, options.session === undefined ? "main" : options.session);
  }

  /**
   * Receive the events of a shell, a session or all shells. The default events are output and ends.
   *
   * The events of a single shell end with its last event. If another reader continues the
   * subscription, this reader gets an error.
   */
  async subscribe(params?: SubscribeParams | null): Promise<Events> {
    const { events: kinds } = optionsIn(params);
    if ((kinds ?? undefined) !== undefined && !Array.isArray(kinds)) throw new TypeError("events must be a list");
    // Copy the params for the same reason as in `stream`.
    const given = copyOf<SubscribeParams>({ ...optionsIn(params) });
    let wanted = given.events ?? undefined;
    const connection = await this.#ready();
    if ((given.subscription ?? undefined) !== undefined) {
      // A continued subscription keeps its own kinds of events, even kinds that this caller does
      // not want.
      delete given.events;
    } else if (wanted === undefined) {
      given.events = wanted = ["exit", "output"];
    } else if (wanted.length && given.bash_id !== undefined) {
      // The iteration ends with the shell, so it needs the event about the shell's end.
      given.events = [...new Set([...wanted, "exit" as const])];
    }
    const events: Events = new Events(() => connection.forget(events), false, wanted);
    try {
      await connection.request("subscribe", given, { events });
      return events;
    } catch (error) {
      events.end();
      throw error;
    }
  }

  /** End the daemon and all its commands. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#connection.close();
  }

  /** Close the client at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Return what remembers a call and its answer. Return undefined without `restart`. */
  #noteOf<M extends keyof Methods>(
    method: M,
    given: Methods[M]["params"],
  ): Note<Methods[M]["result"]> | undefined {
    return this.#options.restart ? this.#memory.noteOf(method, given) : undefined;
  }

  async #whenReady(signal: AbortSignal | undefined): Promise<Connection> {
    throwIfAborted(signal);
    return this.#ready();
  }

  /** Return the connection. With `restart`, start another daemon if this one has ended. */
  #ready(): Connection | Promise<Connection> {
    const { failure } = this.#connection;
    if (failure !== null && this.#options.restart && !this.#isClosed) {
      this.#cause ??= failure;
      this.#connection = new Connection(this.#options);
      this.#replacement = this.#replace(this.#connection, this.#cause);
    }
    return this.#replacement ?? this.#connection;
  }

  async #replace(connection: Connection, cause: DaemonExited): Promise<Connection> {
    const restored = new Map<string, string>();
    try {
      await connection.request("ping", {});
      for (const { method, params } of this.#memory.configured) {
        await connection.request(method, params);
      }
      if (this.#options.keepDirectories) {
        for (const [session, directory] of this.#memory.directories) {
          // The directory may be gone by now.
          const command = `cd -- ${quoted(directory)}`;
          const entered = await connection.request("bash", { command, session });
          if ((entered as BashResult).exitCode === 0) restored.set(session, directory);
        }
      }
    } catch (error) {
      // The next call tries again.
      await connection.close();
      throw error;
    }
    this.#replacement = this.#cause = null;
    // The daemon is ready, so the calls that wait for it must go on.
    this.#tellOfRestart(cause, restored).catch((error: unknown) =>
      process.emitWarning(error instanceof Error ? error : String(error)),
    );
    return connection;
  }

  async #tellOfRestart(
    cause: DaemonExited,
    directories: ReadonlyMap<string, string>,
  ): Promise<void> {
    await this.#options.onRestart?.(cause, directories);
  }
}

/**
 * Return options, which may be left out or null. Throws a `TypeError` for anything but a plain object,
 * such as a timeout or a Map, which would have no effect.
 */
function optionsIn<T extends object>(value: T | null | undefined): T {
  if (typeof (value ?? {}) === "object" && !(Symbol.iterator in Object(value))) return value ?? ({} as T);
  throw new TypeError("options must be a plain object");
}

/** Quote a word for bash. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", String.raw`'\''`)}'`;
}
