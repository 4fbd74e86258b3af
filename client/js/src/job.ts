/** A command in the background: its events, its output, its input and its end. */

import type { Client } from "./client.js";
import { Events } from "./events.js";
import type { BashOutputResult, KillShellResult, ShellEvent, WriteStdinResult } from "./types.js";

export class Job implements AsyncIterable<ShellEvent> {
  #client: Client;
  #events: Events;
  // Where the next `output` begins. Other readers of the shell do not move it.
  #stdout = 0;
  #stderr = 0;

  constructor(
    client: Client,
    /** The `bash_id` of its shell. */
    readonly id: string,
    /** The pid of its bash. */
    readonly pid: number,
    events: Events,
  ) {
    this.#client = client;
    this.#events = events;
  }

  /** Return the output since the last call, at once or after up to `wait` milliseconds. */
  async output(wait = 0): Promise<BashOutputResult> {
    const read = await this.#client.call("bash_output", {
      bash_id: this.id,
      wait,
      stdout_offset: this.#stdout,
      stderr_offset: this.#stderr,
    });
    this.#stdout = read.stdoutRange.end;
    this.#stderr = read.stderrRange.end;
    return read;
  }

  /** Type into the job. It needs `tty` or `open_stdin`. */
  async write(text: string): Promise<WriteStdinResult> {
    return this.#client.call("write_stdin", { bash_id: this.id, text });
  }

  /** Wait for the end, and return the state and all output that is left to read. */
  async wait(): Promise<BashOutputResult> {
    for (;;) {
      const wait = { bash_id: this.id, wait: 600_000, until: "exit", max_bytes: 1 } as const;
      const read = await this.#client.call("bash_output", {
        ...wait,
        stdout_offset: this.#stdout,
        stderr_offset: this.#stderr,
      });
      if (!read.isRunning) return this.output();
    }
  }

  /** End the job with everything that it has started. */
  async kill(): Promise<KillShellResult> {
    return this.#client.call("kill_shell", { shell_id: this.id });
  }

  /** Its events: output, prompts, and "shell/exited" at the end. They can be read once. */
  [Symbol.asyncIterator](): Events {
    return this.#events;
  }
}
