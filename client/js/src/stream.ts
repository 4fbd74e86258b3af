/**
 * Yields the output of a command as it comes. The attribute `result` is its result.
 *
 * If the caller leaves the iteration, the command ends, unless it has moved to the background.
 */

import type { Connection, Note } from "./connection.js";
import { ShelldError } from "./errors.js";
import { Events } from "./events.js";
import { withoutGaps } from "./output.js";
import { commandResult } from "./results.js";
import { onAbort, throwIfAborted, unlessAborted } from "./signals.js";
import type { BackgroundResult, BashParams, BashResult, Methods, OutputEvent } from "./types.js";

export class Stream implements AsyncIterableIterator<OutputEvent> {
  /**
   * The result of the command. The result also comes if nobody iterates. Rejects as `bash` does.
   */
  readonly result: Promise<BashResult | BackgroundResult>;
  #abort = new AbortController();
  #events: Events;
  // Whether the reader has ended the iteration.
  #isLeft = false;
  #items: AsyncGenerator<OutputEvent, undefined>;

  /** `note` learns what becomes of the request. */
  constructor(
    connection: Promise<Connection>,
    params: BashParams,
    note: Note<Methods["bash"]["result"]> | undefined,
    signal?: AbortSignal,
  ) {
    this.#events = new Events(() => {
      connection.then(
        (each) => each.forget(this.#events),
        () => {},
      );
    }, true);
    // The request then fails. The iteration also fails, after the output that has come.
    const revoke = signal ? onAbort(signal, () => this.#abort.abort()) : null;
    this.result = this.#run(connection, params, note, signal).finally(() => revoke?.());
    // The iteration throws the error as well, so nobody needs to handle the rejection of `result`.
    this.result.catch(() => {});
    this.#items = this.#outputs(connection, params);
  }

  next(): Promise<IteratorResult<OutputEvent, undefined>> {
    return this.#items.next();
  }

  async return(): Promise<IteratorResult<OutputEvent, undefined>> {
    this.end();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** End the iteration, and with it the command. */
  end(): void {
    this.#isLeft = true;
    this.#abort.abort();
    this.#events.end();
  }

  async #run(
    starting: Promise<Connection>,
    params: BashParams,
    note: Note<Methods["bash"]["result"]> | undefined,
    signal: AbortSignal | undefined,
  ): Promise<BashResult | BackgroundResult> {
    try {
      throwIfAborted(signal);
      const connection = await unlessAborted(starting, this.#abort.signal);
      const given = { signal: this.#abort.signal, events: this.#events, note };
      // `params` has no `dry_run`, so the answer is about a command that was started.
      const answer = await connection.request("bash", params, given);
      const result = commandResult(answer);
      if (!("exitCode" in result)) {
        // The command runs in the background. If the iteration has already ended, end the command.
        if (this.#abort.signal.aborted) {
          connection.request("kill_shell", { shell_id: result.bash_id }).catch(() => {});
        }
        this.#events.finish();
      }
      return result;
    } catch (error) {
      // If the command has run, the error names the shell, and the event about its end follows.
      // The error about an unknown key has a `bash_id`, too.
      const hasRun =
        error instanceof ShelldError && "bash_id" in error.data && error.kind !== "shell_not_found";
      if (!hasRun) this.#events.finish(error as Error);
      throw error;
    }
  }

  async *#outputs(
    starting: Promise<Connection>,
    params: BashParams,
  ): AsyncGenerator<OutputEvent, undefined> {
    const strip = params.strip_ansi === undefined ? {} : { strip_ansi: params.strip_ansi };
    const read = async (place: Parameters<Parameters<typeof withoutGaps>[1]>[0]) =>
      (await starting).request("bash_output", place);
    for await (const event of withoutGaps(this.#events, read, strip)) {
      if (event.event === "shell/output") yield event;
    }
    if (!this.#isLeft) await this.result;
  }
}
