/**
 * Checks the results that the client itself uses. Pure. Throws a `ShelldError` for a result of any
 * other form.
 */

import { ShelldError } from "./errors.js";
import type { BackgroundResult, BashOutputResult, BashResult } from "./types.js";

/** Return the result of a command that was started, not of a dry run. */
export function commandResult(value: unknown): BashResult | BackgroundResult {
  const members = Object(value) as Partial<BashResult & BackgroundResult>;
  if (!("exitCode" in members) && typeof members.bash_id !== "string") throw odd("bash");
  return value as BashResult | BackgroundResult;
}

/** Return the result of a command in the background. */
export function backgroundResult(value: unknown): BackgroundResult {
  const result = commandResult(value);
  if (typeof result.bash_id !== "string") throw odd("bash");
  return result as BackgroundResult;
}

/** Return the result of a read of output. */
export function readResult(value: unknown): BashOutputResult {
  const { stdout, stderr, stdoutRange, stderrRange, matched } = Object(value) as Partial<BashOutputResult>;
  const hasText = typeof stdout === "string" && typeof stderr === "string";
  if (!hasText || !isRange(stdoutRange) || !isRange(stderrRange)) throw odd("bash_output");
  if (matched && !(isRange(matched) && ["stdout", "stderr"].includes(matched.stream))) throw odd("bash_output");
  return value as BashOutputResult;
}

function isRange(value: unknown): boolean {
  const { start, end } = Object(value) as { start?: unknown; end?: unknown };
  return typeof start === "number" && typeof end === "number";
}

function odd(method: string): ShelldError {
  return new ShelldError(`the peer's result of ${method} has another form`);
}
