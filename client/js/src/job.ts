/** Represents a command in the background, with its events, output, input and end. */

import type { Connection } from "./connection.js";
import { JobEnded, WaitTimedOut } from "./errors.js";
import { Events } from "./events.js";
import { withoutGaps } from "./output.js";
import { readResult } from "./results.js";
import type {
  BackgroundResult,
  BashOutputParams,
  BashOutputResult,
  KillShellParams,
  KillShellResult,
  Listener,
  Matched,
  ReadScreenParams,
  ReadScreenResult,
  ResizeShellResult,
  ShellEvent,
  WriteStdinParams,
  WriteStdinResult,
} from "./types.js";

/**
 * Has one of `text` (a part of a line), `pattern` (RE2) and `port` (0: any). `timeout` is in
 * milliseconds.
 */
export type Condition =
  | { text: string; timeout?: number }
  | { pattern: string; timeout?: number }
  | { port: number; timeout?: number };

const LONGEST_WAIT_MS = 600_000;
// The answer to a wait has at most this much output of each stream. The error of a failed wait
// shows this output.
const SHOWN_BYTES = 64 * 1024;

export class Job implements AsyncIterable<ShellEvent>, AsyncDisposable {
  /** The `bash_id` of the job's shell. */
  readonly id: string;
  /**
   * The pid of the job's bash. It is null if the daemon does not know it (see `BackgroundResult`).
   */
  readonly pid: number | null;
  #connection: Connection;
  #options: Pick<BashOutputParams, "strip_ansi">;
  #session: string | null;
  // The offsets at which the next `output` begins. Other readers of the shell do not move them.
  #stdout = 0;
  #stderr = 0;
  // The offsets at which the next `waitFor` begins to search.
  #searched = { stdout: 0, stderr: 0 };
  // The offsets at which the last matches ended.
  #matchedTo = { stdout: -1, stderr: -1 };

  constructor(
    connection: Connection,
    started: BackgroundResult,
    options: Pick<BashOutputParams, "strip_ansi">,
    session: string | null,
  ) {
    this.#connection = connection;
    this.#session = session;
    this.#options = options;
    this.id = started.bash_id;
    this.pid = started.pid;
  }

  /** Return the output since the last call, at once or after up to `wait` milliseconds. */
  async output(wait = 0): Promise<BashOutputResult> {
    const read = await this.#read({
      wait,
      stdout_offset: this.#stdout,
      stderr_offset: this.#stderr,
    });
    // A call that began earlier may be answered later.
    this.#stdout = Math.max(this.#stdout, read.stdoutRange.end);
    this.#stderr = Math.max(this.#stderr, read.stderrRange.end);
    return read;
  }

  /**
   * Write to the job's input. The job must have been started with `tty` or `open_stdin`. `options`
   * are the other params of `write_stdin`, such as `keys`, `base64` and `eof`. The result has the
   * output that `output` would return, and `output` still returns it.
   */
  async write(
    text = "",
    options: Omit<WriteStdinParams, "bash_id" | "request_id" | "text"> = {},
  ): Promise<WriteStdinResult> {
    // Without the offsets, the output would be missing in the next plain read of the shell.
    const offsets = { stdout_offset: this.#stdout, stderr_offset: this.#stderr };
    const params = { bash_id: this.id, text, ...this.#options, ...offsets, ...options };
    return this.#connection.request("write_stdin", params);
  }

  /**
   * Wait until the job has ended. Return its state, and the output that `output` would return.
   * Rejects with `WaitTimedOut` after `timeout` milliseconds (default: never). The job goes on.
   */
  async wait(timeout = Infinity): Promise<BashOutputResult> {
    const giveUpAt = deadline(timeout);
    for (;;) {
      const [wait, isLast] = waitUntil(giveUpAt);
      const read = await this.#read({
        wait,
        until: "exit",
        max_bytes: isLast ? SHOWN_BYTES : 1,
        stdout_offset: this.#stdout,
        stderr_offset: this.#stderr,
      });
      if (!read.isRunning) return this.output();
      if (isLast) throw new WaitTimedOut(`the command did not end within ${timeout} ms`, read);
    }
  }

  /**
   * Wait until a line has `text` or matches `pattern`, or the command listens on `port`.
   *
   * Text and patterns are searched in the output after the last match, at first from the beginning.
   * Rejects with `WaitTimedOut` after `timeout` milliseconds (default: never), and with `JobEnded`
   * if the command ends first.
   */
  waitFor(what: { port: number; timeout?: number }): Promise<Listener>;
  waitFor(
    what: { text: string; timeout?: number } | { pattern: string; timeout?: number },
  ): Promise<Matched>;
  async waitFor(what: Condition): Promise<Matched | Listener> {
    const [condition, deed] = conditionOf(what);
    const giveUpAt = deadline(what.timeout ?? Infinity);
    for (;;) {
      const [wait, isLast] = waitUntil(giveUpAt);
      const read = await this.#read({
        ...condition,
        wait,
        max_bytes: SHOWN_BYTES,
        stdout_offset: this.#searched.stdout,
        stderr_offset: this.#searched.stderr,
      });
      const { matched, listening } = read;
      if (matched) {
        const { stream, start, end } = matched;
        // The match may be the empty rest of the line of the last match. Skip the line end, and search
        // again.
        const isRest = start === end && end === this.#matchedTo[stream];
        const rest = isRest ? (read[stream].startsWith("\r\n") ? 2 : 1) : 0;
        this.#searched[stream] = Math.max(this.#searched[stream], end + rest);
        this.#matchedTo[stream] = end;
        if (!isRest) return matched;
        continue;
      }
      if (listening?.[0]) return listening[0];
      if (!read.isRunning) {
        const end = read.signal ?? `exit code ${read.exitCode}`;
        const how = read.reason ? `${end} (${read.reason})` : end;
        throw new JobEnded(`the command ended with ${how} and did not ${deed}`, read);
      }
      if (isLast) {
        throw new WaitTimedOut(`the command did not ${deed} within ${what.timeout} ms`, read);
      }
    }
  }

  /** Change the size of the job's terminal. */
  async resize(rows: number, cols: number): Promise<ResizeShellResult> {
    return this.#connection.request("resize_shell", { bash_id: this.id, rows, cols });
  }

  /** Return the screen of the job's terminal, as a person would see it. */
  async screen(options: Omit<ReadScreenParams, "bash_id"> = {}): Promise<ReadScreenResult> {
    return this.#connection.request("read_screen", { bash_id: this.id, ...options });
  }

  /** End the job with everything that it has started. */
  async kill(options: Omit<KillShellParams, "shell_id"> = {}): Promise<KillShellResult> {
    return this.#connection.request("kill_shell", { shell_id: this.id, ...options });
  }

  /**
   * End the job at the end of an `await using` block. If the daemon has ended, the job has ended as
   * well.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#connection.failure === null) await this.kill().catch(() => {});
  }

  /**
   * Yields the job's events: all its output from the beginning, prompts, and "shell/exited" at the
   * end.
   *
   * Each iteration has a subscription of its own, which begins and ends with the iteration.
   */
  [Symbol.asyncIterator](): AsyncIterableIterator<ShellEvent> {
    const events: Events = new Events(() => this.#connection.forget(events), true);
    const items = this.#events(events);
    let isLeft = false;
    return {
      next: async () => (isLeft ? { value: undefined, done: true } : items.next()),
      // The generator's own `return` would wait until a pending `next` has an event.
      return: async () => {
        isLeft = true;
        events.end();
        return { value: undefined, done: true };
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  async *#events(events: Events): AsyncGenerator<ShellEvent, undefined> {
    try {
      const kinds: ("output" | "prompt" | "exit")[] = ["output", "prompt", "exit"];
      const params = { bash_id: this.id, events: kinds, ...this.#options };
      const begun = await this.#connection.request("subscribe", params, { events });
      const read = (place: BashOutputParams) => this.#connection.request("bash_output", place);
      const { subscription, seq } = begun;
      // A colon in the id means that the shell is at a target.
      const colon = this.id.lastIndexOf(":");
      const target = colon < 0 ? {} : { target: this.id.slice(0, colon) };
      const head = { subscription, seq, bash_id: this.id, session: this.#session, ...target };
      yield* withoutGaps(events, read, this.#options, head);
    } finally {
      events.end();
    }
  }

  async #read(params: Omit<BashOutputParams, "bash_id">): Promise<BashOutputResult> {
    const all = { bash_id: this.id, ...this.#options, ...params };
    return readResult(await this.#connection.request("bash_output", all));
  }
}

/** Return when to give up: in `timeout` milliseconds. */
function deadline(timeout: unknown): number {
  if (typeof timeout !== "number") throw new TypeError("timeout must be a number");
  return performance.now() + timeout;
}

/** Return how many milliseconds the next request may wait, and whether it is the last one. */
function waitUntil(giveUpAt: number): [number, boolean] {
  const left = Math.max(0, giveUpAt - performance.now());
  const wait = Math.ceil(Math.min(left, LONGEST_WAIT_MS));
  return [wait, left <= wait];
}

function conditionOf(what: Condition): [Omit<BashOutputParams, "bash_id">, string] {
  const given = Object(what) as Record<string, unknown>;
  if ([("text" in given), ("pattern" in given), ("port" in given)].filter(Boolean).length !== 1) {
    throw new TypeError("waitFor needs a text, a pattern or a port, and only one of them");
  }
  // The daemon would take a port that is null or undefined for any port.
  for (const [name, type] of [["text", "string"], ["pattern", "string"], ["port", "number"]] as const) {
    if (name in given && typeof given[name] !== type) {
      throw new TypeError(`the ${name} of waitFor must be a ${type}`);
    }
  }
  if ("port" in what) {
    const port = what.port === 0 ? {} : { port: what.port };
    const deed = what.port ? `listen on port ${what.port}` : "listen on a port";
    return [{ until: "listening", ...port }, deed];
  }
  if ("pattern" in what) {
    return [{ until: "match", pattern: what.pattern }, `write ${JSON.stringify(what.pattern)}`];
  }
  if (what.text.includes("\n")) {
    throw new TypeError("a line cannot have a line end in it: wait for one of the lines");
  }
  const pattern = what.text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  return [{ until: "match", pattern }, `write ${JSON.stringify(what.text)}`];
}
