/**
 * A queue of events that is read by `for await`. Reading never loses an event.
 *
 * Above a limit, the text of output that nobody has taken is dropped and counts as skipped;
 * `bash_output` can read it by its offset.
 */

import type { ShellEvent } from "./types.js";

const MAX_HELD_CHARACTERS = 8 * 1024 * 1024;

export class Events implements AsyncIterableIterator<ShellEvent> {
  #events: ShellEvent[] = [];
  #waiting: (() => void)[] = [];
  #held = 0;
  #isOver = false;
  #failure: Error | null = null;
  #onEnd: () => void;

  /** `onEnd` is called once, when the reader ends the iteration. */
  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
  }

  put(event: ShellEvent): void {
    if (this.#isOver) return;
    if (event.event === "shell/output") {
      if (this.#held > MAX_HELD_CHARACTERS) {
        const skipped = event.skipped + event.end - event.start;
        event = { ...event, text: "", start: event.end, dropped: 0, skipped };
      }
      this.#held += event.text.length;
    }
    this.#events.push(event);
    this.#wake();
  }

  /** No more events come. The reader still gets those that have come, then `failure`, if any. */
  finish(failure: Error | null = null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#failure = failure;
    this.#wake();
  }

  /** End the iteration. */
  end(): void {
    if (!this.#isOver) this.#onEnd();
    this.finish();
    this.#events = [];
    this.#held = 0;
  }

  async next(): Promise<IteratorResult<ShellEvent, undefined>> {
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined) {
        if (event.event === "shell/output") this.#held -= event.text.length;
        return { value: event, done: false };
      }
      if (this.#isOver) {
        const failure = this.#failure;
        this.#failure = null;
        if (failure !== null) throw failure;
        return { value: undefined, done: true };
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  async return(): Promise<IteratorResult<ShellEvent, undefined>> {
    this.end();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
