// Drives a daemon with the npm client. Arguments: the compiled client, then the daemon's command.
// Prints what happened as JSON.
import { pathToFileURL } from "node:url";

const [program, ...command] = process.argv.slice(2);
const { Client, DaemonExited, ShelldError } = await import(pathToFileURL(program).href);
const found = {};
const failure = (promise) => promise.then(() => null, (error) => error);

const shell = new Client({ command, args: ["--grace", "100"], cwd: "/" });
const result = await shell.bash("echo out; echo é >&2; exit 3");
found.result = [result.stdout, result.stderr, result.exitCode];
found.session = (await shell.bash("cd /usr; x=1"), (await shell.bash("echo $PWD $x")).stdout);
found.concurrent = (
  await Promise.all([...Array(20).keys()].map((n) => shell.bash(`echo ${n}`, { session: null })))
).every((each, n) => each.stdout === `${n}\n`);
found.long = (await shell.bash("head -c 1000000 /dev/zero | tr '\\0' 'é'")).stdoutBytes;

const missing = await failure(shell.bashOutput("shell_nobody"));
found.missing = [missing instanceof ShelldError, missing.code, missing.kind];
const controller = new AbortController();
const cancelled = failure(shell.bash("sleep 300", { signal: controller.signal }));
controller.abort();
found.cancelled = (await cancelled).code;
found.aborted = (await failure(shell.bash("true", { signal: controller.signal }))).name;

const job = await shell.start("echo ready; read line; echo got $line; exit 4", { open_stdin: true });
found.ready = (await job.output(10_000)).stdout;
await job.write("it\n");
const seen = [];
for await (const event of job) {
  if (event.event === "shell/output") seen.push(event.text);
  if (event.event === "shell/exited") seen.push(event.exitCode);
}
found.events = seen.at(-1) === 4 && seen.slice(0, -1).join("") === "ready\ngot it\n";
const ended = await job.wait();
found.wait = [ended.stdout, ended.exitCode, ended.isRunning];

const killed = await shell.start("setsid sleep 300 & echo $!; wait");
found.pid = Number((await killed.output(10_000)).stdout);
found.kill = [(await killed.kill()).survivors.length, (await killed.wait()).status];

const events = await shell.subscribe({ events: ["exit"] });
const started = [await shell.start("exit 1"), await shell.start("exit 1")];
const exits = [];
for await (const event of events) {
  exits.push(event.bash_id);
  if (exits.length === 2) break;
}
found.subscribed = started.map((each) => each.id).sort().join() === exits.sort().join();

const left = await shell.start("sleep 300");
// It ends with the job or, if that comes first, with the daemon.
const over = failure((async () => { for await (const _ of left); })());
const pending = failure(shell.bash("sleep 300", { session: null }));
await shell.call("ping", {});
await shell.close();
await over;
found.closed = [await pending, await failure(shell.bash("true"))].map(
  (each) => each instanceof ShelldError || each,
);

const dead = new Client({ command: ["/nowhere/shelld"] });
const unstarted = await failure(dead.bash("true"));
found.unstarted = [unstarted instanceof DaemonExited, unstarted.message.split(":")[0]];
await dead.close();
const broken = new Client({ command, args: ["--nonsense"] });
found.broken = (await failure(broken.bash("true"))).message.split("\n").at(-1);
await broken.close();
process.stdout.write(JSON.stringify(found));
