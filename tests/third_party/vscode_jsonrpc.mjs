// Talks to a daemon as a VS Code extension would, with the same library. It reports on stdout, as
// JSON. Usage: node vscode_jsonrpc.mjs COMMAND [ARGUMENT ...]

import { spawn } from "node:child_process";
import rpc from "vscode-jsonrpc/node";

const [command, ...args] = process.argv.slice(2);
// Start the daemon as vscode-languageclient starts a server.
const daemon = spawn(command, [...args, "--stdio", `--clientProcessId=${process.pid}`]);
const ended = new Promise((resolve) => daemon.on("exit", (code) => resolve(code)));
let stderr = "";
daemon.stderr.on("data", (data) => (stderr += data));

const connection = rpc.createMessageConnection(
  new rpc.StreamMessageReader(daemon.stdout),
  new rpc.StreamMessageWriter(daemon.stdin),
);
const unhandled = [];
connection.onUnhandledNotification((message) => unhandled.push(message));
connection.onError(([error]) => unhandled.push(String(error)));
connection.listen();

const report = {};

// The first request of this library has the id 0.
report.ping = await connection.sendRequest("ping");
report.pingNull = await connection.sendRequest("ping", null).catch((error) => error.code);

const foreground = await connection.sendRequest("bash", { command: "echo out; echo err >&2; exit 3" });
report.foreground = [foreground.stdout, foreground.stderr, foreground.exitCode];
report.positional = (await connection.sendRequest("bash", "echo one")).stdout;
report.failure = await connection
  .sendRequest("bash", {})
  .catch((error) => [error.code, error.message, error.data.kind]);

const job = await connection.sendRequest("bash", {
  command: "echo ready; sleep 300",
  run_in_background: true,
});
const first = await connection.sendRequest("bash_output", { bash_id: job.bash_id, wait: 10000 });
report.background = [first.stdout, first.isRunning];
const waiting = connection.sendRequest("bash_output", {
  bash_id: job.bash_id,
  wait: 60000,
  until: "exit",
});
const killed = await connection.sendRequest("kill_shell", { shell_id: job.bash_id });
report.killed = [killed.status, killed.survivors.length];
report.waited = (await waiting).status;

const source = new rpc.CancellationTokenSource();
const slow = connection.sendRequest("bash", { command: "sleep 300" }, source.token);
setImmediate(() => source.cancel());
report.cancelled = await slow.catch((error) => error.code);

const long = await connection.sendRequest("bash", {
  command: "yes 0123456789012345678 | head -c 5000000",
});
const rest = await connection.sendRequest("bash_output", {
  bash_id: long.bash_id,
  stdout_offset: 0,
  max_bytes: 8000000,
});
report.long = [long.truncated, long.stdoutBytes, rest.stdout.length];

const answers = await Promise.all(
  Array.from({ length: 100 }, (_, number) =>
    connection.sendRequest("bash", { command: `echo ${number}`, session: null }),
  ),
);
report.many = answers.every((answer, number) => answer.stdout === `${number}\n`);
report.unhandled = unhandled;

report.shutdown = await connection.sendRequest("shutdown");
await connection.sendNotification("exit");
report.exitCode = await ended;
report.stderr = stderr;
console.log(JSON.stringify(report));
