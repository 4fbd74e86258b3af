/**
 * Calls functions when an `AbortSignal` is aborted, and throws if it is aborted already. All
 * functions of a signal share one listener, because Node warns of a leak if a signal has more than
 * ten.
 */

import { ShelldError } from "./errors.js";

const CANCELLED = -32800;

/**
 * Throw the error of a cancelled request, if `signal` is aborted. It is the error that the daemon
 * would send.
 */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new ShelldError("Request cancelled", CANCELLED, { kind: "cancelled" });
}

/** Return the signal in options, or undefined without one. Throws a `TypeError` for anything else. */
export function signalIn(options: { signal?: AbortSignal | undefined } | null): AbortSignal | undefined {
  const signal = options?.signal ?? undefined;
  // The signal may be of another realm or a library, so do not check its class.
  const { aborted, addEventListener: listen } = Object(signal) as Partial<AbortSignal>;
  if (signal === undefined || (typeof aborted === "boolean" && typeof listen === "function")) return signal;
  throw new TypeError("signal must be an AbortSignal");
}

class Waiting {
  readonly functions = new Set<() => void>();
  readonly listener = () => {
    for (const each of this.functions) each();
  };
}

const waitingFor = new WeakMap<AbortSignal, Waiting>();

/** Call `run` when `signal` is aborted. Return a function that revokes this call. */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const waiting = waitingFor.get(signal) ?? new Waiting();
  if (!waiting.functions.size) {
    signal.addEventListener("abort", waiting.listener, { once: true });
    waitingFor.set(signal, waiting);
  }
  waiting.functions.add(run);
  return () => {
    waiting.functions.delete(run);
    if (!waiting.functions.size) signal.removeEventListener("abort", waiting.listener);
  };
}

/** Return what `promise` returns, or throw the error of a cancelled request after an abort. */
export async function unlessAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) return promise;
  throwIfAborted(signal);
  let revoke = () => {};
  const aborted = new Promise<void>((resolve) => (revoke = onAbort(signal, resolve)));
  try {
    await Promise.race([promise, aborted]);
    throwIfAborted(signal);
    return await promise;
  } finally {
    revoke();
  }
}
