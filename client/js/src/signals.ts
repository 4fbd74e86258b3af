/**
 * Calls functions when an `AbortSignal` is aborted. All functions of a signal share one listener,
 * because Node warns of a leak if a signal has more than ten.
 */

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
