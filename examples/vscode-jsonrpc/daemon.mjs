// Start the daemon the way an extension of VS Code would, with vscode-jsonrpc.
//
// It needs `shelld` on the PATH, or the environment variable SHELLD with another command line.

import { spawn } from "node:child_process";
import rpc from "vscode-jsonrpc/node";

export function connect() {
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
  return connection;
}

export async function disconnect(connection) {
  await connection.sendRequest("shutdown");
  await connection.sendNotification("exit");
}
