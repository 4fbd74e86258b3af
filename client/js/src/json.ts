/**
 * Refuses params that JSON does not have, or that the daemon could not read.
 *
 * `JSON.stringify` would turn NaN and infinity into null, which stands for a default. It would leave
 * out functions and the content of a Map. It refuses a bigint, but does not name the param. If the
 * daemon cannot read a message, its error does not name the request.
 */

import { ShelldError } from "./errors.js";

const INVALID_PARAMS = -32602;
// The nesting that every daemon accepts. The message itself is the first level.
const MAX_LEVELS = 400;

/** Return a copy of params, as the daemon reads them. Throws like `checkJson`. */
export function copyOf<T>(params: T): T {
  checkJson(params);
  return params === undefined ? params : (JSON.parse(JSON.stringify(params)) as T);
}

/** Throws `ShelldError` with the kind "invalid_params". `name` is the name of the value. */
export function checkJson(value: unknown, name = "", level = 2): void {
  if ((typeof value === "number" && !Number.isFinite(value)) || typeof value === "bigint") {
    throw refused(name, `${value} is not a number in JSON`);
  } else if (typeof value === "string" && hasLoneSurrogate(value)) {
    throw refused(name, "must not contain lone surrogates");
  } else if (typeof value === "function" || typeof value === "symbol") {
    throw refused(name, `a ${typeof value} is not a value in JSON`);
  } else if (value instanceof Map || value instanceof Set) {
    throw refused(name, "must be a plain object or an array, not a Map or a Set");
  } else if (typeof value === "object" && value !== null) {
    if (level > MAX_LEVELS) {
      throw refused(name.split(".")[0] ?? "", `a message has at most ${MAX_LEVELS} nested levels`);
    }
    const isList = Array.isArray(value);
    if (isList && value.includes(undefined)) throw refused(name, "undefined is not a value in JSON");
    for (const [key, member] of Object.entries(value)) {
      if (hasLoneSurrogate(key)) throw refused(name, "must not contain lone surrogates");
      checkJson(member, isList ? name : name ? `${name}.${key}` : key, level + 1);
    }
  }
}

function hasLoneSurrogate(text: string): boolean {
  // With the flag u, this pattern matches only a lone surrogate, not a half of a whole pair.
  return /\p{Surrogate}/u.test(text);
}

function refused(name: string, reason: string): ShelldError {
  const data = { kind: "invalid_params", parameter: name };
  return new ShelldError(`Invalid value for ${name}: ${reason}`, INVALID_PARAMS, data);
}
