/** The npm client of shelld. */

export { type BashOptions, Client, type ClientOptions } from "./client.js";
export { DaemonExited, ShelldError } from "./errors.js";
export { Events } from "./events.js";
export { Job } from "./job.js";
export type * from "./types.js";
