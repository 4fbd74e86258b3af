// Drives a daemon with the npm client. Arguments: the compiled client, then the daemon's command.
// The script prints the results as JSON.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const [program, ...command] = process.argv.slice(2);
const { Client, DaemonExited, JobEnded, ShelldError, WaitTimedOut } = await import(pathToFileURL(program).href);
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
const { signal: spent } = controller;
const notBegun = shell.stream("true", { signal: spent });
found.aborted = (await Promise.all([failure(shell.bash("true", { signal: spent })), failure(notBegun.next())])).map(
  ({ name, code, kind }) => [name, code, kind],
);

const job = await shell.start("echo ready; read line; echo got $line; exit 4", { open_stdin: true });
found.ready = (await job.output(10_000)).stdout;
await job.write("it\n");
// The write has not taken the output from readers of the shell.
found.leftBy = [(await shell.bashOutput(job.id)).stdout.slice(0, 6)];
const quiet = await shell.start("echo one; read line", { open_stdin: true });
await quiet.waitFor({ text: "one" });
found.leftBy.push((await quiet.write("it\n")).stdout, (await quiet.output()).stdout);
const seen = [];
for await (const event of job) {
  if (event.event === "shell/output") seen.push(event.text);
  if (event.event === "shell/exited") seen.push(event.exitCode);
}
found.events = seen.at(-1) === 4 && seen.slice(0, -1).join("") === "ready\ngot it\n";
const ended = await job.wait();
found.wait = [ended.stdout, ended.exitCode, ended.isRunning];

// A job takes the other options of the methods.
const bytes = await shell.start("od -An -tx1", { open_stdin: true });
found.timedOut = (await failure(bytes.wait(50))).message;
await bytes.write("", { base64: "/wA=", eof: true });
found.bytes = (await bytes.wait(60_000)).stdout;
const asking = await shell.start("read line", { tty: true, on_prompt: "kill" });
found.asked = (await failure(asking.waitFor({ text: "never" }))).message;
const { version: since } = await asking.screen();
found.changed = (await asking.screen({ since })).changed;
const interrupted = await shell.start("trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done");
await interrupted.waitFor({ text: "ready" });
found.interrupted = (await interrupted.kill({ signal: "INT" })).exitCode;

// The iteration also yields output that a plain read has returned.
const readBefore = await shell.start("echo log >&2; echo ready; sleep 300");
const ready = { wait: 60_000, until: "match", pattern: "ready" };
await shell.call("bash_output", { bash_id: readBefore.id, ...ready });
const yielded = [];
for await (const event of readBefore) {
  if (yielded.push(`${event.session} ${event.text}`) === 2) break;
}
found.readBefore = yielded.sort();
await readBefore.kill();

// Endless stdout does not hold back stderr.
const busy = await shell.start("echo log >&2; exec yes");
await shell.call("bash_output", { bash_id: busy.id, wait: 60_000, until: "match", pattern: "^y" });
for await (const event of busy) {
  if (event.stream !== "stderr") continue;
  found.heldBack = event.text;
  break;
}
await busy.kill();

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
// The iteration ends with the job, or with the daemon if the daemon ends first.
const over = failure((async () => { for await (const _ of left); })());
const pending = failure(shell.bash("sleep 300", { session: null }));
await shell.call("ping", {});
await shell.close();
await over;
found.closed = [await pending, await failure(shell.bash("true"))].map(
  (each) => each instanceof ShelldError || each,
);

// This reader takes nothing at first. The queue drops output, and the client reads it again by its
// offset.
const { Events } = await import(new URL("events.js", pathToFileURL(program)));
const { withoutGaps } = await import(new URL("output.js", pathToFileURL(program)));
const queue = new Events(() => {});
const mebibyte = 2 ** 20;
for (let n = 0; n < 12; n++) {
  const place = { start: n * mebibyte, end: (n + 1) * mebibyte, dropped: 0, skipped: 0 };
  const text = "x".repeat(mebibyte);
  queue.put({ event: "shell/output", bash_id: "b", stream: "stdout", text, ...place });
}
queue.put({ event: "shell/exited", stdoutBytes: 12 * mebibyte, stderrBytes: 0 });
const reads = [];
const read = async ({ stdout_offset: start, max_bytes: size }) => {
  reads.push(start / mebibyte);
  const stdoutRange = { start, end: start + size, dropped: 0 };
  const stderrRange = { start: 0, end: 0, dropped: 0 };
  return { stdout: "y".repeat(size), stderr: "", stdoutRange, stderrRange };
};
let whole = "";
for await (const each of withoutGaps(queue, read, {})) whole += each.text ?? "";
found.refilled = [whole.length / mebibyte, reads];

// This reader takes nothing for long. 300,000 events would take minutes if each moved the others.
const many = new Events(() => {});
for (let seq = 1; seq <= 300_000; seq++) many.put({ event: "shell/prompt", seq });
found.many = 0;
for (let seq = 1; seq <= 300_000; seq++) found.many += (await many.next()).value.seq === seq;

// Two reads run at the same time, and the first gets its answer last.
const { Job } = await import(new URL("job.js", pathToFileURL(program)));
const asked = [];
const request = (_, params) => new Promise((answer) => asked.push({ ...params, answer }));
const twoReads = new Job({ request }, { bash_id: "b", pid: 1 }, {});
const both = [twoReads.output(), twoReads.output()];
for (const [n, end] of [[1, 5], [0, 3]]) {
  const range = { start: 0, end, dropped: 0 };
  asked[n].answer({ stdout: "", stderr: "", stdoutRange: range, stderrRange: range });
}
await Promise.all(both);
void twoReads.output();
found.offsets = [asked[2].stdout_offset, asked[2].stderr_offset];

const restarts = [];
const onRestart = async (cause) => {
  restarts.push(cause.message);
  throw new Error("calls go on");
};
const again = new Client({ command, restart: true, onRestart });
const streamed = again.stream("seq 200000; exit 3");
let [text, at, hasGap] = ["", 0, false];
for await (const each of streamed) {
  hasGap ||= each.start !== at;
  at = each.end;
  text += each.text;
}
found.streamed = [text.split("\n").length, hasGap, (await streamed.result).exitCode];
const abandoned = again.stream("echo $$; sleep 300");
for await (const each of abandoned) {
  found.abandoned = Number(each.text);
  break;
}
found.ended = (await failure(abandoned.result)).code;
const heard = [];
let tooLate;
// On a busy machine, the time may be over before the command begins. Then start it again.
const mark = join(mkdtempSync(join(tmpdir(), "shelld-")), "mark");
while (!existsSync(mark)) {
  heard.length = 0;
  const late = again.stream(`echo so far; touch ${mark}; sleep 300`, { timeout: 1000 });
  tooLate = await failure((async () => { for await (const { text } of late) heard.push(text); })());
}
rmSync(dirname(mark), { recursive: true });
found.late = [heard, tooLate.kind];
const refused = again.stream("true", { cwd: "/nowhere" });
found.refused = (await failure(refused.next())).kind;
const handed = again.stream("echo hi; sleep 300", { timeout: 1000, on_timeout: "background" });
for await (const _ of handed);
const { status, subscription } = await handed.result;
found.handed = [status, (await failure(again.call("subscribe", { subscription }))).kind];
const aborter = new AbortController();
const aborted = again.stream("echo so far; sleep 300", { signal: aborter.signal });
found.abortedStream = [(await aborted.next()).value.text];
aborter.abort();
found.abortedStream.push((await failure(aborted.next())).code);

// Node warns of a leak if a signal has more than ten listeners.
const leaks = [];
process.on("warning", ({ name }) => { if (name.startsWith("MaxListeners")) leaks.push(name); });
const common = new AbortController();
const { signal } = common;
const [calls, streams] = [[...Array(6)], [...Array(6)]].map((each) => each.map(() => "sleep 300"));
const ends = [
  ...calls.map((each) => failure(again.bash(each, { session: null, signal }))),
  ...streams.map((each) => failure(again.stream(each, { session: null, signal }).next())),
];
common.abort();
found.commonSignal = [(await Promise.all(ends)).every(Boolean), leaks];
const waited = (await again.start("sleep 300"))[Symbol.asyncIterator]();
const never = waited.next();
found.leftWhileWaiting = [(await waited.return()).done, (await never).done, (await waited.next()).done];

const nested = (levels) => (levels ? [nested(levels - 1)] : 1);
const unfit = [{ timeout: NaN }, { timeout: 5000n }, { env: { a: "\ud83d" } }, { env: { "\ud83d": "a" } }, { env: nested(399) },
  { env: new Map([["a", "b"]]) }, { env: { a: () => "b" } }, { env: { a: [undefined] } }];
found.unfit = await Promise.all(
  unfit.map(async (each) => (await failure(again.bash("true", each))).data.parameter),
);
found.fit = (await again.bash("echo 😀", { env: { a: "😀" } })).stdout;
const modest = new Client({ command, args: ["--max-message-bytes", "100K"] });
const [small, large] = ["x", "x".repeat(200_000)].map((stdin) => failure(modest.bash("cat", { stdin })));
found.tooLarge = [await small, (await large).data.max_message_bytes];
await modest.close();

const patient = new Client({ command, startTimeout: Infinity });
found.patient = (await patient.bash("echo ok")).stdout;
await patient.close();

const awaited = await again.start("echo one; echo 'two (2)'; sleep 300");
found.waitFor = [
  (await awaited.waitFor({ text: "two (2)" })).line,
  (await failure(awaited.waitFor({ text: "one", timeout: 100 }))) instanceof WaitTimedOut,
  (await awaited.output()).stdout,
  (await failure(awaited.waitFor({}))).name,
  (await failure(awaited.waitFor({ port: NaN }))).kind,
];
const told = (promise) => promise.then(() => "none", ({ name, message }) => `${name}: ${message}`);
const odd = { signal: { aborted: "no" } };
found.wrongTypes = await Promise.all([
  ...[5, "now", {}, new EventTarget()].map((signal) => told(again.bash("true", { signal }))),
  told((async () => again.stream("true", odd))()),
  told(again.call("ping", {}, odd)),
  told(awaited.waitFor({ text: 5 })),
  told(awaited.waitFor({ port: undefined })),
  told(awaited.waitFor({ text: "two", timeout: "100" })),
  told(awaited.waitFor("two")),
  told(awaited.waitFor(null)),
  told(again.subscribe({ events: "exit" })),
  told(again.call("subscribe", null)),
  told(again.bash("true", 5000)),
  told((async () => again.stream("true", "no"))()),
  told(again.start("true", ["no"])),
  told(again.bash("true", new Map([["cwd", "/"]]))),
  told(again.call("ping", {}, 5)),
  told(again.subscribe("shell")),
  told((async () => new Client(command))()),
]);
// The caller uses its options again, and changes them before a request is sent.
const shared = { env: { a: "1" }, events: ["output"] };
const echoing = again.stream("echo stream $a", { env: shared.env });
const starting = again.start("echo start $a", { env: shared.env });
const subscribing = again.subscribe({ events: shared.events });
shared.env.a = "2";
shared.events[0] = "exit";
const heardFirst = await subscribing;
found.changedOptions = [(await echoing.next()).value.text, (await (await starting).wait()).stdout];
await again.bash("echo heard");
found.changedOptions.push((await heardFirst.next()).value.event);
heardFirst.end();
const nulls = again.stream("echo stream", null);
found.nullOptions = [
  (await again.bash("echo bash", null)).stdout,
  (await again.bash("echo bash", { signal: null })).stdout,
  (await nulls.next()).value.text,
  (await (await again.start("echo start", null)).wait()).stdout,
  await again.call("ping", {}, null),
];
(await again.subscribe(null)).end();
(await again.subscribe({ events: null, subscription: null })).end();
await new Client(null).close();
const lines = await again.start("echo one; echo; printf 'two\\r\\n'; echo three; exec sleep 300");
found.lines = [];
for (const _ of "1234") found.lines.push((await lines.waitFor({ pattern: ".*" })).line);
await lines.kill();
const twice = [];
for (const _ of "12") for await (const each of awaited) { twice.push(each.text); break; }
found.twice = new Set(twice).size;
const gone = failure(awaited.waitFor({ pattern: "never" }));
await awaited[Symbol.asyncDispose]();
found.gone = (await gone) instanceof JobEnded;

await again.call("configure_session", { session: "few", limits: { open_files: 77 } });
const inFlight = failure(again.bash("sleep 300"));
process.kill((await again.call("server_info", {})).pid, "SIGKILL");
found.inFlight = (await inFlight) instanceof DaemonExited;
const few = () => again.bash("ulimit -n", { session: "few" }).then((each) => each.stdout);
found.restarted = [await Promise.all([few(), few()]), restarts];
await again.close();
found.notAgain = (await failure(again.bash("true"))).message;

const greeting = ["sh", "-c", 'echo null; echo 3; exec "$@"', "sh", ...command];
const greeted = new Client({ command: greeting });
found.greeted = (await greeted.bash("echo ok")).stdout;
await greeted.close();
const strange = async (words, startTimeout) => {
  const client = new Client({ command: words, startTimeout });
  const { message } = await failure(client.bash("true"));
  await client.close();
  return message;
};
// This peer answers the client's own first request, and then runs `rest`.
const peer = (rest) => ["sh", "-c", `read a; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; read b; ${rest}`];
const nameless = '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}';
found.strange = await Promise.all([
  strange(["sleep", "300"], 100),
  strange(["cat"]),
  strange(["yes"], 100_000),
  strange(peer("echo oops; exec cat")),
  strange(peer(`echo '${nameless}'; exec cat`)),
  strange(peer("exec sleep 300 >&-")),
]);
const deaf = new Client({ command: peer("exec sleep 300 <&-"), startTimeout: 20_000 });
failure(deaf.call("ping", {})).then(({ message }) => (found.deaf = message));
while (found.deaf === undefined) {
  // The client learns of the closed input when it writes.
  deaf.call("ping", {}).catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 20));
}
await deaf.close();
// The text before the first answer has no line end.
const glued = "read a; read b; printf %s 'Hello {'; echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}'; exec cat";
const beside = new Client({ command: ["sh", "-c", glued], startTimeout: 20_000 });
found.glued = await beside.call("ping", {});
await beside.close();

const dead = new Client({ command: ["/nowhere/shelld"] });
const unstarted = await failure(dead.bash("true"));
found.unstarted = [unstarted instanceof DaemonExited, unstarted.message.split(":")[0]];
await dead.close();
const broken = new Client({ command, args: ["--nonsense"] });
found.broken = (await failure(broken.bash("true"))).message.split("\n").at(-1);
await broken.close();
process.stdout.write(JSON.stringify(found));
