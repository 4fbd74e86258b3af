// Run a command the way an extension of VS Code would, with vscode-jsonrpc. Follow what it writes,
// and end it with Ctrl-C. On a terminal, the command gets a terminal, too, and what you type.
//
//   npm install vscode-jsonrpc
//   node run.mjs 'for i in 1 2 3; do echo $i; sleep 1; done'
//   node run.mjs 'python3 -q'
//
// It needs `shelld` on the PATH, or the environment variable SHELLD with another command line.

import { connect, disconnect } from "./daemon.mjs";

const command = process.argv[2] ?? "echo hello";
const connection = connect();

const { stdin, stdout } = process;
const isTerminal = Boolean(stdin.isTTY && stdout.isTTY);
const sizes = () => ({ rows: stdout.rows, cols: stdout.columns });

const job = await connection.sendRequest("bash", {
  command,
  run_in_background: true,
  ...(isTerminal && { tty: true, ...sizes() }),
});
const shell = { bash_id: job.bash_id };
const endedMeanwhile = () => {};
let isOver = false;

if (isTerminal) {
  // Ctrl-C is now a key like any other.
  stdin.setRawMode(true);
  stdin.setEncoding("utf8");
  stdin.on("data", (text) => {
    connection.sendRequest("write_stdin", { ...shell, text }).catch(endedMeanwhile);
  });
  stdout.on("resize", () => {
    connection.sendRequest("resize_shell", { ...shell, ...sizes() }).catch(endedMeanwhile);
  });
} else {
  process.on("SIGINT", () => connection.sendRequest("kill_shell", { shell_id: job.bash_id }));
}

// The daemon answers what the program asks its terminal. This terminal must not answer, too.
let held = "";
function withoutQuestions(text) {
  const all = held + text;
  const start = isOver ? -1 : all.search(/\x1b(\[(>?0?|[56])?)?$/);
  held = start < 0 ? "" : all.slice(start);
  return all.slice(0, all.length - held.length).replace(/\x1b\[(>?0?c|[56]n)/g, "");
}

// On a terminal, read by offsets: write_stdin returns output, too, and must not take it from here.
const whence = isTerminal ? { stdout_offset: 0, strip_ansi: false } : {};
let output;
do {
  // Waits in the daemon until there is something new; nothing polls.
  output = await connection.sendRequest("bash_output", { ...shell, ...whence, wait: 60_000 });
  isOver = !(output.isRunning || output.more);
  if (isTerminal) {
    whence.stdout_offset = output.stdoutRange.end;
    stdout.write(withoutQuestions(output.stdout));
  } else {
    stdout.write(output.stdout);
  }
  process.stderr.write(output.stderr);
} while (!isOver);

if (isTerminal) {
  stdin.setRawMode(false);
  stdin.pause();
}
await disconnect(connection);
process.exitCode = output.exitCode ?? 1;
