// Run a command the way an extension of VS Code would, with vscode-jsonrpc. Follow what it writes,
// and end it with Ctrl-C. On a terminal, the command gets a terminal, too, and what you type.
//
//   npm install vscode-jsonrpc
//   node run.mjs 'for i in 1 2 3; do echo $i; sleep 1; done'
//   node run.mjs 'python3 -q'
//
// With --attach NAME, the command goes on if this program is killed, as a window that is reloaded.
// Without a command, it then shows a command that was left so:
//
//   node run.mjs --attach work 'for i in {1..60}; do echo $i; sleep 1; done'
//   node run.mjs --attach work

import { Daemon } from "./daemon.mjs";
import { Task } from "./task.mjs";

const given = process.argv.slice(2);
const attach = given[0] === "--attach" ? given.splice(0, 2)[1] : undefined;
const daemon = new Daemon({ attach });
const { stdin, stdout, stderr } = process;

// What to follow: a command, or the one that was left last.
async function chosen() {
  const left = attach && given.length === 0 ? await daemon.left() : [];
  const bash_id = left.at(-1)?.bash_id;
  return bash_id ? { bash_id } : { command: given[0] ?? "echo hello", run_in_background: true };
}

function runInTerminal(what) {
  const task = new Task(daemon, what);
  task.onDidWrite((text) => stdout.write(text));
  task.open(stdout);
  // Ctrl-C is now a key like any other.
  stdin.setRawMode(true);
  stdin.setEncoding("utf8");
  stdin.on("data", (text) => task.handleInput(text));
  stdout.on("resize", () => task.setDimensions(stdout));
  return new Promise((resolve) => task.onDidClose(resolve));
}

function runBetweenPipes(what) {
  return new Promise((resolve, reject) => {
    const events = ["output", "exit"];
    const onEvent = (name, event) => {
      if (event.missing > 0) stderr.write(`[${event.missing} bytes skipped]\n`);
      if (name === "exited" || name === "lost") resolve(event.exitCode ?? 1);
      else (event.stream === "stdout" ? stdout : stderr).write(event.text);
    };
    const { answer } = what.bash_id
      ? daemon.follow({ ...what, events }, onEvent)
      : daemon.run({ ...what, notify: events }, onEvent);
    answer.catch(reject);
    process.on("SIGINT", async () => {
      await daemon.request("kill_shell", { shell_id: (await answer).bash_id });
    });
  });
}

const isTerminal = Boolean(stdin.isTTY && stdout.isTTY);
const follow = isTerminal ? runInTerminal : runBetweenPipes;
process.exitCode = await follow(await chosen());

if (isTerminal) {
  stdin.setRawMode(false);
  stdin.pause();
}
await daemon.end();
