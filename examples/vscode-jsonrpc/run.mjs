// Run a command the way an extension of VS Code would, with vscode-jsonrpc: follow what it writes,
// and end it with Ctrl-C.
//
//   npm install vscode-jsonrpc
//   node run.mjs 'for i in 1 2 3; do echo $i; sleep 1; done'
//
// It needs `shelld` on the PATH, or the environment variable SHELLD with another command line.

import { spawn } from "node:child_process";
import rpc from "vscode-jsonrpc/node";

const command = process.argv[2] ?? "echo hello";
const [program, ...args] = (process.env.SHELLD ?? "shelld").split(" ");

// --clientProcessId: if this process is killed, the daemon ends, and so does everything it runs.
const daemon = spawn(program, [...args, "--stdio", `--clientProcessId=${process.pid}`], {
  stdio: ["pipe", "pipe", "inherit"],
});
daemon.on("error", (error) => {
  const reason = error.code === "ENOENT" ? "it is not on the PATH" : error.message;
  console.error(`Cannot start ${program}: ${reason}. Install it, or set SHELLD.`);
  process.exit(1);
});
const connection = rpc.createMessageConnection(
  new rpc.StreamMessageReader(daemon.stdout),
  new rpc.StreamMessageWriter(daemon.stdin),
);
connection.listen();

const job = await connection.sendRequest("bash", { command, run_in_background: true });
process.on("SIGINT", () => connection.sendRequest("kill_shell", { shell_id: job.bash_id }));

let output;
do {
  // Waits in the daemon until there is something new; nothing polls.
  output = await connection.sendRequest("bash_output", { bash_id: job.bash_id, wait: 60_000 });
  process.stdout.write(output.stdout);
  process.stderr.write(output.stderr);
} while (output.isRunning || output.more);

await connection.sendRequest("shutdown");
await connection.sendNotification("exit");
process.exitCode = output.exitCode ?? 1;
