// Run commands one after the other, and wait for each, the way an agent in VS Code would. See what
// each writes as it comes, and type into it. Ctrl-B hands the command that runs over to the
// background: it continues, and the next one starts. If a command asks in the background, it gets
// your next line. Ctrl-C ends all commands.
//
//   npm install vscode-jsonrpc
//   node foreground.mjs 'sleep 60; echo slow' 'read -p "Your name: "; echo "Hi $REPLY"' 'ls'

import { Daemon } from "./daemon.mjs";
import { Task } from "./task.mjs";

const daemon = new Daemon();
const { stdin, stdout } = process;
const ends = [];
// The task that gets the keys, unless another task asks.
let foreground;
let asking;

// Run a command until it ends or is handed over.
async function run(command) {
  let name;
  let line = "";
  let question;
  const task = new Task(daemon, { command }, { ask });
  foreground = task;

  async function ask(text) {
    question = text;
    if (task !== foreground) askHere();
  }

  function askHere() {
    console.log(`[${name} waits for input: ${question}]`);
    asking = task;
  }

  // A task in the background must not write into the lines of other tasks.
  task.onDidWrite((text) => {
    question = undefined;
    if (task === foreground) {
      stdout.write(text);
      return;
    }
    const lines = (line + text).split("\n");
    line = lines.pop();
    for (const each of lines) console.log(`${name} | ${each}`);
  });
  ends.push(new Promise((resolve) => task.onDidClose(resolve)));
  await new Promise((resolve) => {
    task.onDidClose(resolve);
    task.onDidMoveToBackground((id) => {
      name = id;
      foreground = undefined;
      console.log(`\n[${name} continues in the background]`);
      if (question) askHere();
      resolve();
    });
    task.open(stdout);
  });
  foreground = undefined;
}

if (stdin.isTTY) stdin.setRawMode(true);
stdin.setEncoding("utf8");
stdin.on("data", (text) => {
  if (text === "\x02") {
    if (foreground) foreground.toBackground();
    else console.log("[nothing runs in the foreground]");
  } else if (text === "\x03") {
    // The daemon notices, and ends everything.
    process.exit(130);
  } else {
    (asking ?? foreground)?.handleInput(text);
    if (text.includes("\r")) asking = undefined;
  }
});

for (const command of process.argv.slice(2)) await run(command);
await Promise.all(ends);

if (stdin.isTTY) stdin.setRawMode(false);
stdin.pause();
await daemon.end();
