/**
 * Yields the events of one shell with all its output. Reads skipped output by its offset.
 *
 * Never moves the position of plain reads. In each stream, the output of an event begins where the
 * output of the event before it ended.
 */

import { ShelldError } from "./errors.js";
import type { Events } from "./events.js";
import { readResult } from "./results.js";
import type { BashOutputParams, BashOutputResult, OutputEvent, ShellEvent } from "./types.js";

type Output = OutputEvent & { event: "shell/output" };
export type Read = (params: BashOutputParams) => Promise<BashOutputResult>;

// The maximum number of bytes of skipped output that one request reads.
const GAP_BYTES = 1024 * 1024;
// The kinds of errors after which skipped output counts as lost.
const LOST: readonly (string | null)[] = ["shell_not_found", "shutting_down"];

/** The members that all events of a shell have. */
export type Head = Pick<ShellEvent, "subscription" | "seq" | "bash_id" | "session" | "target">;

/**
 * Yield the events up to the end of the shell. `options` are options of the reads. `begun` is given
 * if the subscription began after the command. Output that somebody has read before comes first
 * then, because a subscription begins with unread output.
 */
export async function* withoutGaps(
  events: Events,
  read: Read,
  options: Pick<BashOutputParams, "strip_ansi">,
  begun?: Head,
): AsyncGenerator<ShellEvent, undefined> {
  const ends = { stdout: 0, stderr: 0 };

  async function* catchUp(head: Head) {
    // One read returns both streams. Otherwise, a command that writes to stdout all the time would
    // hold back its stderr.
    for (let more = true; more; ) {
      const places = { stdout_offset: ends.stdout, stderr_offset: ends.stderr, max_bytes: GAP_BYTES };
      let found: BashOutputResult;
      try {
        found = readResult(await read({ bash_id: head.bash_id, ...options, ...places }));
      } catch (error) {
        if (!isLost(error)) throw error;
        return;
      }
      more = false;
      for (const stream of ["stdout", "stderr"] as const) {
        const start = ends[stream];
        const { end, dropped } = stream === "stdout" ? found.stdoutRange : found.stderrRange;
        if (end <= start) continue;
        more = found.more;
        ends[stream] = end;
        yield outputOf(head, { stream, text: found[stream], start, end, dropped });
      }
    }
  }

  async function* fill(event: ShellEvent, stream: "stdout" | "stderr", end: number) {
    while (ends[stream] < end) {
      const start = ends[stream];
      const size = Math.min(GAP_BYTES, end - start);
      const { text, range } = await part(event.bash_id, stream, start, size);
      // A read that returns nothing is not repeated, because the output ends within a character.
      const stop = range.end === start ? end : range.end;
      const dropped = range.end === start ? end - start : range.dropped;
      ends[stream] = stop;
      yield outputOf(event, { stream, text, start, end: stop, dropped });
    }
  }

  async function part(id: string, stream: "stdout" | "stderr", start: number, size: number) {
    try {
      const place = { [`${stream}_offset`]: start, max_bytes: size };
      const found = readResult(await read({ bash_id: id, ...options, ...place }));
      return stream === "stdout"
        ? { text: found.stdout, range: found.stdoutRange }
        : { text: found.stderr, range: found.stderrRange };
    } catch (error) {
      if (!isLost(error)) throw error;
      return { text: "", range: { start, end: start, dropped: 0 } };
    }
  }

  if (begun !== undefined) yield* catchUp(begun);
  for await (const event of events) {
    if (event.event === "shell/output") {
      yield* fill(event, event.stream, event.start);
      if (event.start < ends[event.stream]) {
        // A read has skipped lost output, and has returned output after the beginning of this
        // event.
        yield* fill(event, event.stream, event.end);
        continue;
      }
      ends[event.stream] = event.end;
      if (event.text || event.dropped) yield event;
      continue;
    }
    if (event.event === "shell/exited") {
      yield* fill(event, "stdout", event.stdoutBytes);
      yield* fill(event, "stderr", event.stderrBytes);
      yield event;
      return;
    }
    yield event;
  }
}

function isLost(error: unknown): boolean {
  return error instanceof ShelldError && LOST.includes(error.kind);
}

function outputOf(
  { subscription, seq, bash_id, session, target }: Head,
  output: Pick<Output, "stream" | "text" | "start" | "end" | "dropped">,
): Output {
  const shell = { bash_id, session, ...(target === undefined ? {} : { target }) };
  return { event: "shell/output", subscription, seq, ...shell, skipped: 0, ...output };
}
