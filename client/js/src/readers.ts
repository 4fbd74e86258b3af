/**
 * Records which queue of events reads each subscription.
 *
 * A reader that leaves ends its subscription. When a request that continues a subscription is
 * answered, the queue of this request becomes the reader, and the previous reader gets an error.
 * While such a request has no answer, a reader that leaves does not end the subscription.
 */

import { ShelldError } from "./errors.js";
import type { Events } from "./events.js";

export class Readers {
  #readers = new Map<string, Events>();
  // For each subscription, the number of continuing requests without an answer.
  #heirs = new Map<string, number>();
  // The subscriptions whose reader has left, and which have heirs.
  #left = new Set<string>();

  /** Record that a request will continue a subscription. */
  expect(subscription: string): void {
    this.#heirs.set(subscription, (this.#heirs.get(subscription) ?? 0) + 1);
  }

  /**
   * Record that a continuing request was answered. Return whether nobody needs the subscription.
   */
  answered(subscription: string): boolean {
    const heirs = (this.#heirs.get(subscription) ?? 1) - 1;
    if (heirs) this.#heirs.set(subscription, heirs);
    else this.#heirs.delete(subscription);
    return !heirs && this.#left.delete(subscription);
  }

  /** Record who reads a subscription; undefined for a request without a queue. */
  claim(subscription: string, reader: Events | undefined): void {
    const before = this.#readers.get(subscription);
    if (reader === undefined) this.#readers.delete(subscription);
    else this.#readers.set(subscription, reader);
    this.#left.delete(subscription);
    if (before === undefined || before === reader) return;
    before.finish(new ShelldError(`${subscription} was continued by another reader`));
  }

  /** Record that a subscription is gone, so that nobody needs to end it. */
  lost(subscription: string): void {
    this.#readers.delete(subscription);
  }

  /** Record that a reader has left. Return the subscriptions to end. */
  leave(reader: Events): string[] {
    const own = [...this.#readers].filter(([, each]) => each === reader).map(([name]) => name);
    for (const name of own) {
      this.#readers.delete(name);
      if (this.#heirs.has(name)) this.#left.add(name);
    }
    return own.filter((name) => !this.#heirs.has(name));
  }
}
