/** Defines the errors of the client. `ShelldError` is the base of all errors. */

import type { BashOutputResult } from "./types.js";

/** An error of the daemon. `kind` is its stable name, such as "timeout" or "shell_not_found". */
export class ShelldError extends Error {
  override name = "ShelldError";

  constructor(
    message: string,
    readonly code: number | null = null,
    readonly data: Record<string, unknown> = {},
  ) {
    super(message);
  }

  get kind(): string | null {
    return typeof this.data["kind"] === "string" ? this.data["kind"] : null;
  }
}

/** The daemon is gone, or the client is closed. `stderr` is the end of what the daemon said. */
export class DaemonExited extends ShelldError {
  override name = "DaemonExited";

  constructor(
    message: string,
    readonly stderr: string,
  ) {
    super(stderr ? `${message}\n${stderr}` : message);
  }
}

/**
 * A call of `waitFor` or `wait` has reached its timeout. `read` has the output since the last match,
 * or after `wait`, the output that `output` would return.
 */
export class WaitTimedOut extends ShelldError {
  override name = "WaitTimedOut";

  constructor(
    message: string,
    readonly read: BashOutputResult,
  ) {
    super(message);
  }
}

/**
 * The command has ended before the condition of `waitFor` was met. `read` has the command's end and
 * output.
 */
export class JobEnded extends ShelldError {
  override name = "JobEnded";

  constructor(
    message: string,
    readonly read: BashOutputResult,
  ) {
    super(message);
  }
}
