// Run a command the way an extension of VS Code would, with vscode-jsonrpc. Follow what it writes,
// and end it with Ctrl-C. On a terminal, the command gets a terminal, too, and what you type.
//
//   npm install vscode-jsonrpc
//   node run.mjs 'for i in 1 2 3; do echo $i; sleep 1; done'
//   node run.mjs 'python3 -q'

import { Daemon } from "./daemon.mjs";
import { Task } from "./task.mjs";

const command = process.argv[2] ?? "echo hello";
const daemon = new Daemon();
const { stdin, stdout, stderr } = process;

function runInTerminal() {
  const task = new Task(daemon, { command, run_in_background: true });
  task.onDidWrite((text) => stdout.write(text));
  task.open(stdout);
  // Ctrl-C is now a key like any other.
  stdin.setRawMode(true);
  stdin.setEncoding("utf8");
  stdin.on("data", (text) => task.handleInput(text));
  stdout.on("resize", () => task.setDimensions(stdout));
  return new Promise((resolve) => task.onDidClose(resolve));
}

function runBetweenPipes() {
  return new Promise((resolve, reject) => {
    const params = { command, run_in_background: true, notify: ["output", "exit"] };
    const { answer } = daemon.run(params, (name, event) => {
      if (event.missing > 0) stderr.write(`[${event.missing} bytes skipped]\n`);
      if (name === "exited" || name === "lost") resolve(event.exitCode ?? 1);
      else (event.stream === "stdout" ? stdout : stderr).write(event.text);
    });
    answer.catch(reject);
    process.on("SIGINT", async () => {
      await daemon.request("kill_shell", { shell_id: (await answer).bash_id });
    });
  });
}

const isTerminal = Boolean(stdin.isTTY && stdout.isTTY);
process.exitCode = await (isTerminal ? runInTerminal() : runBetweenPipes());

if (isTerminal) {
  stdin.setRawMode(false);
  stdin.pause();
}
await daemon.end();
