/** Exports the npm client of shelld. */

export { type BashOptions, Client, type ClientOptions } from "./client.js";
export { DaemonExited, JobEnded, ShelldError, WaitTimedOut } from "./errors.js";
export { Events } from "./events.js";
export { type Condition, Job } from "./job.js";
export { Stream } from "./stream.js";
export type * from "./types.js";
