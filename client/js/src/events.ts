/** A queue of events that is read by `for await`. Reading never loses an event. */

import type { ShellEvent } from "./types.js";

export class Events implements AsyncIterableIterator<ShellEvent> {
  #events: ShellEvent[] = [];
  #waiting: (() => void)[] = [];
  #isOver = false;
  #failure: Error | null = null;
  #onEnd: () => void;

  /** `onEnd` is called once, when the reader ends the iteration. */
  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
  }

  put(event: ShellEvent): void {
    if (this.#isOver) return;
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
  }

  async next(): Promise<IteratorResult<ShellEvent, undefined>> {
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined) return { value: event, done: false };
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
