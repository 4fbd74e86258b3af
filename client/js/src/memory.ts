/**
 * Remembers what the next daemon must know after a daemon has died: the configuration of each target
 * and session, and where sessions are: their targets, and their last known directories.
 */

import type { Note } from "./connection.js";
import { ShelldError } from "./errors.js";
import type { BashParams, Methods } from "./types.js";

type Configuring = "add_target" | "configure_session";
export type Configuration = { [M in Configuring]: { method: M; params: Methods[M]["params"] } }[Configuring];

// The methods about a session that take the session's target.
const ABOUT_SESSIONS = new Set(["bash", "close_session", "configure_session", "get_session"]);
// Of these methods, the ones that begin a session.
const BEGINNING = new Set(["bash", "configure_session"]);
// The kinds of errors after which a first call has begun no session.
const REFUSED: readonly (string | null)[] = ["invalid_params", "resource_exhausted"];

export class Memory {
  #targets = new Map<string, Methods["add_target"]["params"]>();
  #sessions = new Map<string, Methods["configure_session"]["params"]>();
  #directories = new Map<string, string>();
  // The targets of the sessions that a call has begun there.
  #places = new Map<string, string>();

  /**
   * Return the params of a call with the target of its session, if they name none.
   *
   * A new daemon does not know the target of a session that a command has begun. Without the target,
   * the session's next command would run at this daemon.
   */
  withTarget<M extends keyof Methods>(method: M, params: Methods[M]["params"]): Methods[M]["params"] {
    const { session, target } = Object(params) as { session?: string | null; target?: string | null };
    const place = this.#places.get(session ?? "");
    if (place === undefined || target != null || !ABOUT_SESSIONS.has(method)) return params;
    return { ...Object(params), target: place };
  }

  /**
   * Return what records a call and its answer.
   *
   * A call that begins a session at a target is recorded when it is sent, because the daemon does so,
   * too. The call may be cancelled, or its command may be killed, but the session stays there.
   */
  noteOf<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
  ): Note<Methods[M]["result"]> {
    const { session, target } = Object(params) as { session?: unknown; target?: unknown };
    let isFirst = false;
    return {
      sent: () => {
        if (typeof session !== "string" || typeof target !== "string") return;
        isFirst = begins(method, params) && !this.#places.has(session);
        if (isFirst) this.#places.set(session, target);
      },
      result: (result) => this.#note(method, params, result),
      error: (error) => {
        if (typeof session !== "string" || !(error instanceof ShelldError)) return;
        const { kind, data } = error;
        const isUnsent = kind === "target_lost" && !data.maybeStarted;
        const isUnknown = method === "close_session" && kind === "session_not_found";
        if (isUnknown || (isFirst && (isUnsent || REFUSED.includes(kind)))) {
          this.#places.delete(session);
        }
      },
    };
  }

  /**
   * Record a call that has succeeded. The results must come in the order in which they arrive,
   * because a later command may have changed the directory again. Never throws, whatever the peer
   * sends.
   */
  #note<M extends keyof Methods>(
    method: M,
    given: Methods[M]["params"],
    result: Methods[M]["result"],
  ): void {
    const call = { method, params: Object(given) } as { method: string; params: unknown };
    if (call.method === "add_target") {
      const params = call.params as Methods["add_target"]["params"];
      this.#targets.set(params.name, params);
    } else if (call.method === "configure_session") {
      // A later call replaces all settings of an earlier call, as in the daemon. But it need not name
      // the session's target again.
      const params = call.params as Methods["configure_session"]["params"];
      const target = params.target ?? this.#sessions.get(params.session)?.target;
      this.#sessions.set(params.session, target == null ? params : { ...params, target });
    } else if (call.method === "close_session") {
      const { session } = call.params as Methods["close_session"]["params"];
      this.#sessions.delete(session);
      this.#directories.delete(session);
      this.#places.delete(session);
    } else if (call.method === "bash") {
      const { session } = call.params as BashParams;
      const { bash_id: id, sessionCwd } = Object(result) as { bash_id?: unknown; sessionCwd?: unknown };
      // A colon in the id means that the shell and its directory are at a target.
      const colon = String(id).lastIndexOf(":");
      if (colon >= 0) {
        if (session != null && begins("bash", call.params)) {
          this.#places.set(session, String(id).slice(0, colon));
        }
      } else if (typeof sessionCwd === "string" && sessionCwd) {
        this.#directories.set(session ?? "main", sessionCwd);
      }
    } else if (call.method === "remove_target") {
      const { name } = call.params as Methods["remove_target"]["params"];
      // The targets behind this target, and the sessions at all of them, are gone as well.
      const isThere = (place: string) => `${place}:`.startsWith(`${name}:`);
      for (const each of this.#targets.keys()) if (isThere(each)) this.#targets.delete(each);
      for (const [session, { target }] of this.#sessions) {
        if (isThere(target ?? "")) this.#sessions.delete(session);
      }
      for (const [session, target] of this.#places) {
        if (isThere(target)) this.#places.delete(session);
      }
    }
  }

  /** The calls that configure the next daemon as the last daemon was configured. */
  get configured(): Configuration[] {
    return [
      ...[...this.#targets.values()].map((params) => ({ method: "add_target" as const, params })),
      ...[...this.#sessions.values()].map((params) => ({
        method: "configure_session" as const,
        params,
      })),
    ];
  }

  /** The directory of each session that has run a command. */
  get directories(): ReadonlyMap<string, string> {
    return new Map(this.#directories);
  }
}

/** Tell whether a call to a target begins its session, if it has one and it is new. */
function begins(method: keyof Methods, params: unknown): boolean {
  const { session = "main", dry_run: dry, key_must_exist: found } = Object(params) as Partial<BashParams>;
  return BEGINNING.has(method) && session !== "main" && !dry && !found;
}
