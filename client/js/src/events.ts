/**
 * Provides a queue of events for `for await`. Reading never loses an event.
 *
 * Above a limit, the text of output that nobody has taken is dropped and counts as skipped;
 * `bash_output` can read it by its offset.
 */

import type { ShellEvent, SubscribeParams, SubscribeResult } from "./types.js";

const MAX_HELD_CHARACTERS = 8 * 1024 * 1024;

export class Events implements AsyncIterableIterator<ShellEvent> {
  #events: (ShellEvent | undefined)[] = [];
  // The number of events that were taken. The queue keeps them for a while, because `shift` would
  // move all other events.
  #taken = 0;
  #waiting: (() => void)[] = [];
  #held = 0;
  #isOver = false;
  #failure: Error | null = null;
  #onEnd: () => void;
  #isLast: (event: ShellEvent) => boolean;
  #isWanted: (event: ShellEvent) => boolean;

  /**
   * `onEnd` is called once, when no more events come or the reader has left. If `isOfOneShell`,
   * "shell/exited" is the last event. `wanted` lists the events to yield; the default is all events
   * that come.
   */
  constructor(onEnd: () => void, isOfOneShell = false, wanted?: SubscribeParams["events"]) {
    this.#onEnd = onEnd;
    this.#isLast = ({ event }) => isOfOneShell && event === "shell/exited";
    const methods = wanted?.map((name) => (name === "exit" ? "shell/exited" : `shell/${name}`));
    this.#isWanted = ({ event }) => methods?.includes(event) ?? true;
  }

  /** Record the answer to the subscription, before its events. `params` are those of the request. */
  begin(result: SubscribeResult, params: SubscribeParams): void {
    if (!result.bash_id) return;
    if (result.isOver) {
      this.#isLast = ({ seq }) => seq >= result.seq;
      // The last event has already come, unless the daemon sends events again. With a key, it sends
      // all events that it keeps.
      const begin = (params.idempotency_key ?? null) === null ? result.seq : 0;
      if ((params.from_seq ?? begin) === result.seq) this.finish();
      return;
    }
    // A peer may send a value of another type.
    const tellsLeftover = Array.isArray(result.events) && result.events.includes("leftover");
    this.#isLast = (each) =>
      each.event === "shell/exited"
        ? !(tellsLeftover && each.leftover.length)
        : each.event === "shell/leftover" && !each.leftover.length;
  }

  put(event: ShellEvent): void {
    if (this.#isOver) return;
    const isLast = this.#isLast(event);
    if (this.#isWanted(event)) this.#keep(event);
    if (isLast) this.finish();
    this.#wake();
  }

  #keep(event: ShellEvent): void {
    if (event.event === "shell/output") {
      if (this.#held > MAX_HELD_CHARACTERS) {
        const skipped = event.skipped + event.end - event.start;
        event = { ...event, text: "", start: event.end, dropped: 0, skipped };
      }
      this.#held += event.text.length;
    }
    this.#events.push(event);
  }

  /**
   * Record that no more events come. The reader still gets the events that have come, and then
   * `failure`, if any.
   */
  finish(failure: Error | null = null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#failure = failure;
    this.#onEnd();
    this.#wake();
  }

  /** End the iteration. */
  end(): void {
    this.finish();
    this.#failure = null;
    this.#events = [];
    this.#held = this.#taken = 0;
  }

  async next(): Promise<IteratorResult<ShellEvent, undefined>> {
    for (;;) {
      const event = this.#take();
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

  #take(): ShellEvent | undefined {
    const event = this.#events[this.#taken];
    if (event === undefined) return undefined;
    this.#events[this.#taken++] = undefined;
    if (this.#taken * 2 >= this.#events.length) {
      this.#events.splice(0, this.#taken);
      this.#taken = 0;
    }
    if (event.event === "shell/output") this.#held -= event.text.length;
    return event;
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
