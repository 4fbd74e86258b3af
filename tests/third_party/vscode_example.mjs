// Drives the example as an extension of VS Code would, and reports what its terminals show, as
// JSON. The script is in the folder of the example.

import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { Daemon } from "./daemon.mjs";
import { Task } from "./task.mjs";

const daemon = new Daemon();
const report = {};

// A terminal of VS Code, with the task that it shows.
class Terminal {
  text = "";
  #changed = () => {};

  constructor(command, { ask, ...params } = { run_in_background: true }) {
    this.task = new Task(daemon, { command, ...params }, { ask });
    this.task.onDidWrite((text) => {
      this.text += text;
      this.#changed();
    });
    this.closed = new Promise((resolve) => this.task.onDidClose(resolve));
    this.moved = new Promise((resolve) => this.task.onDidMoveToBackground(resolve));
    this.task.open({ rows: 24, columns: 80 });
  }

  async shows(pattern) {
    while (!pattern.test(this.text)) await new Promise((resolve) => (this.#changed = resolve));
    return this.text.match(pattern);
  }

  async end() {
    const exitCode = await this.closed;
    return [this.text.replace(/after \d+\.\d s/, "after N s").replaceAll("\r\n", "\n"), exitCode];
  }
}

const openGate = (name) => appendFileSync(name, "open\n");

function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

// Both commands run at the same time. Each writes two lines, and waits for its gate between them.
const left = new Terminal("sh steps left");
const right = new Terminal("sh steps right");
await left.shows(/left 1/);
await right.shows(/right 1/);
openGate("right");
await right.shows(/right 2/);
openGate("left");
[report.left] = await left.end();
[report.right] = await right.end();

const parent = new Terminal("sleep 300 & echo pid $!; wait");
const [, pid] = await parent.shows(/pid (\d+)/);
report.ran = isAlive(pid);
await parent.task.close();
report.killed = (await parent.end())[0].replace(/pid \d+/, "pid PID");
while (isAlive(pid)) await new Promise(setImmediate);

// Node blocks until the command has written everything, and later blocks once more.
function blockUntilExists(name) {
  while (!existsSync(name)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
}
const flood = new Terminal("sh flood");
await flood.shows(/y/);
blockUntilExists("flooded");
// Once this command has ended, the client has read all output of the flood.
await new Terminal("true").closed;
openGate("more");
await flood.shows(/next/);
openGate("again");
blockUntilExists("flooded again");
const [shown] = await flood.end();
const losses = [...shown.matchAll(/^\[(\d+) bytes skipped\]$/gm)].map(([, count]) => Number(count));
const skipped = losses.reduce((sum, each) => sum + each, 0);
// At the edges of the skipped output, a line may be cut.
const written = skipped + 3 * shown.match(/^y$/gm).length;
report.flood = losses.length > 1 && Math.abs(written - 12_000_000) < 6 * (losses.length + 1);

const over = new Terminal("sh steps over", {});
await over.shows(/over 1/);
over.task.toBackground();
await over.moved;
openGate("over");
[report.handed_over] = await over.end();

const silent = new Terminal("sleep 300", {});
await silent.task.close();
[report.silent] = await silent.end();

[report.blocked] = await new Terminal("rm -rf /").end();

// A foreground command that writes nothing, and waits for the size and a line.
const quiet = new Terminal(
  "until [[ $(stty size) == '30 100' ]] && read -t 0; do sleep 0.05; done; read -r x; echo got $x",
  {},
);
quiet.task.setDimensions({ rows: 30, columns: 100 });
quiet.task.handleInput("word\r");
[report.quiet] = await quiet.end();

const questions = [];
const asking = new Terminal("read -rsp 'Password: ' a; read -rp 'Name: ' b; echo; echo ${#a} $b", {
  ask: async (question, isSecret) => {
    questions.push([question, isSecret]);
    return isSecret ? "quixotic" : "Ada";
  },
});
[report.asked] = await asking.end();
report.questions = questions;

// Keys answer the first question, so the user's later answer is dropped.
const answers = [];
const twice = new Terminal("read -rp 'First: ' a; read -rp 'Second: ' b; echo \"<$a> <$b>\"", {
  ask: () =>
    new Promise((resolve) => {
      answers.push(resolve);
      if (answers.length === 1) {
        twice.task.handleInput("typed\n");
      } else {
        answers[0]("late");
        answers[1]("asked");
      }
    }),
});
await twice.shows(/<typed> <asked>/);
report.late = (await twice.end())[1];

report.coloured = await new Terminal("printf '\\e[31mred\\e[0m'; exit 3").end();

const seqs = [];
const ended = new Promise((resolve) => {
  const params = { command: "sh steps left", run_in_background: true, notify: ["output", "exit"] };
  daemon.run(params, (name, event) => {
    seqs.push(event.seq);
    if (name === "output" && event.text.includes("left 1")) openGate("left");
    if (name === "exited") resolve();
  });
});
await ended;
report.seqs = seqs;

const lost = new Terminal("echo lost; sleep 300");
await lost.shows(/lost/);
const children = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8");
for (const child of children.trim().split(" ")) process.kill(Number(child), "SIGKILL");
[report.lost] = await lost.end();

writeFileSync("report", JSON.stringify(report));
