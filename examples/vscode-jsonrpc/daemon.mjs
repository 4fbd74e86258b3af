// The daemon, for an extension of VS Code: start it with vscode-jsonrpc, and follow commands by
// their events.
//
// It needs `shelld` on the PATH, or the environment variable SHELLD with another command line.
//
// With `attach`, the name of a lasting daemon such as that of the workspace, commands go on when the
// window is reloaded, for up to an hour. The next window calls `left` when it is activated.

import { spawn } from "node:child_process";
import rpc from "vscode-jsonrpc/node";

// The exit code of `shelld attach` if another client has the daemon.
const OCCUPIED = 4;

// Remembers the id of the last request: events carry this id, and the library does not return it.
class Writer extends rpc.StreamMessageWriter {
  write(message) {
    if (rpc.Message.isRequest(message)) this.lastId = message.id;
    return super.write(message);
  }
}

export class Daemon {
  #connection;
  #writer;
  // The commands that run, by the ids of their requests.
  #runs = new Map();
  // The functions that reject the requests without an answer.
  #unanswered = new Set();

  #attach;
  #stdin;
  #startedAt = Date.now();

  constructor({ attach } = {}) {
    const [program, ...args] = (process.env.SHELLD ?? "shelld").split(" ");
    this.#attach = attach;
    if (attach) args.push("attach", `--name=${attach}`);
    // --clientProcessId: if this process is killed, the daemon ends, and so does all that it runs.
    // With `attach`, the daemon waits for the next window.
    const daemon = spawn(program, [...args, "--stdio", `--clientProcessId=${process.pid}`], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#stdin = daemon.stdin;
    daemon.on("error", (error) => {
      const reason = error.code === "ENOENT" ? "it is not on the PATH" : error.message;
      console.error(`Cannot start ${program}: ${reason}. Install it, or set SHELLD.`);
      process.exit(1);
    });
    this.#writer = new Writer(daemon.stdin);
    const reader = new rpc.StreamMessageReader(daemon.stdout);
    this.#connection = rpc.createMessageConnection(reader, this.#writer);
    this.#connection.onNotification((method, event) => this.#onEvent(method, event));
    daemon.on("close", (exitCode) => this.#onEnd(exitCode));
    this.#connection.listen();
  }

  request(method, params) {
    return new Promise((resolve, reject) => {
      this.#unanswered.add(reject);
      this.#connection
        .sendRequest(method, params)
        .finally(() => this.#unanswered.delete(reject))
        .then(resolve, reject);
    });
  }

  // Run a command. `onEvent` gets the names and the params of its events, in their order; or "lost"
  // with a reason, if the connection ends first. Returns the id of the request, and the promise of
  // its answer.
  run(params, onEvent) {
    return this.#listen("bash", params, onEvent);
  }

  // Follow a command that an earlier window has started, from its first output on. `params` are
  // those of subscribe.
  follow(params, onEvent) {
    return this.#listen("subscribe", params, onEvent);
  }

  // Return the shells that run, and those that have ended while no window was attached.
  async left() {
    const { attachment } = await this.request("server_info", {});
    const leftAt = this.#startedAt - attachment.detachedMs;
    const { shells } = await this.request("list_shells", {});
    return shells.filter(
      ({ isRunning, startedAt, durationMs }) =>
        isRunning || Date.parse(startedAt) + durationMs >= leftAt,
    );
  }

  #onEnd(exitCode) {
    const isOccupied = this.#attach && exitCode === OCCUPIED;
    const reason = isOccupied
      ? `another window is attached to ${this.#attach}`
      : "the daemon has ended";
    for (const { onEvent } of this.#runs.values()) onEvent("lost", { reason });
    // The library leaves these requests without an answer.
    for (const reject of this.#unanswered) reject(new Error(reason));
  }

  #listen(method, params, onEvent) {
    const answer = this.request(method, params);
    const id = this.#writer.lastId;
    this.#runs.set(id, { onEvent, skipped: 0 });
    answer.catch(() => this.#runs.delete(id));
    return { id, answer };
  }

  #onEvent(method, event) {
    const run = this.#runs.get(event.requestId);
    if (!run) return;
    const isEnd = method === "shell/exited";
    // A command may write faster than its client reads. Then the daemon skips output. An event with
    // output counts the bytes that were skipped before it; the end counts all skipped bytes.
    const skipped = (event.skipped ?? 0) - (isEnd ? run.skipped : 0);
    run.skipped += skipped;
    const missing = skipped + (event.dropped ?? 0);
    if (isEnd) this.#runs.delete(event.requestId);
    run.onEvent(method.replace("shell/", ""), { ...event, missing });
  }

  // End the daemon, and all that it runs; or only detach from it.
  async end() {
    if (this.#attach) return this.#stdin.end();
    await this.request("shutdown");
    await this.#connection.sendNotification("exit");
  }
}
