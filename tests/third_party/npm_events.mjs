// Subscriptions of the npm client: their ends, and their readers. Arguments: the compiled client, then
// the daemon's command. The script prints the results as JSON.
import fs from "node:fs";
import os from "node:os";
import { pathToFileURL } from "node:url";

const [program, ...command] = process.argv.slice(2);
const { Client } = await import(pathToFileURL(program).href);
const found = {};
const shell = new Client({ command });
const failure = (promise) => promise.then(() => null, (error) => error);
const messageOf = async (promise) => (await failure(promise)).message.replace(/sub_\w+/, "sub");
const all = async (events, of) => {
  const seen = [];
  for await (const event of events) seen.push(of(event));
  return seen;
};

const short = await shell.start("echo out");
found.oneShell = await all(await shell.subscribe({ bash_id: short.id }), ({ event }) => event);
const chosen = await shell.start("echo out; echo err >&2");
found.chosen = (
  await all(await shell.subscribe({ bash_id: chosen.id, events: ["output"] }), (event) => event)
).filter(({ stream }) => stream !== "stderr").map(({ text }) => text);
const leaving = await shell.start("sleep 300 & echo $!");
const process_ = Number((await leaving.output(10_000)).stdout);
await leaving.wait();
const leftovers = await shell.subscribe({ bash_id: leaving.id, events: ["exit", "leftover"] });
const first = await leftovers.next();
process.kill(process_, "SIGKILL");
found.leftover = [first.value.event, ...(await all(leftovers, ({ event }) => event)).slice(-1)];

const { subscription: over } = await shell.call("subscribe", { bash_id: short.id, events: ["output", "exit"] });
await shell.bash("true");
await (await shell.start("true")).wait();
while (!(await shell.call("subscribe", { subscription: over })).isOver);
found.overAgain = await all(await shell.subscribe({ subscription: over, from_seq: 0 }), ({ seq }) => seq);
const { subscription: late } = await shell.call("subscribe", { bash_id: short.id, events: ["exit"] });
while (!(await shell.call("subscribe", { subscription: late })).isOver);
found.over = await all(await shell.subscribe({ subscription: late }), ({ seq }) => seq);

// The answer to the first request with the key was lost.
const keyed = { bash_id: short.id, events: ["exit"], idempotency_key: "key" };
const { subscription: unknown } = await shell.call("subscribe", keyed);
while (!(await shell.call("subscribe", { subscription: unknown })).isOver);
found.keyed = await all(await shell.subscribe(keyed), ({ seq }) => seq);

const asking = await shell.start("echo out; read line", { open_stdin: true });
const { subscription: endless } = await shell.call("subscribe", { bash_id: asking.id, events: ["output"] });
const untold = await shell.subscribe({ subscription: endless, from_seq: 0 });
found.untold = [(await untold.next()).value.text];
await asking.write("\n");
found.untold.push((await untold.next()).done);

// Another reader continues the subscription.
const begun = async () => {
  const job = await shell.start("echo out; read line; echo $line; read line", { open_stdin: true });
  const params = { bash_id: job.id, events: ["output", "exit"] };
  const { subscription } = await shell.call("subscribe", params);
  return [job, subscription, await shell.subscribe({ subscription, from_seq: 0 })];
};
const [job, name, one] = await begun();
found.first = [(await one.next()).value.text];
const other = await shell.subscribe({ subscription: name, from_seq: 0 });
found.first.push(await messageOf(one.next()));
one.end();
found.second = [(await other.next()).value.text];
await job.write("more\n");
found.second.push((await other.next()).value.text);
await shell.call("subscribe", { subscription: name });
found.unlistened = await messageOf(other.next());

// The reader of a subscription leaves while another reader is about to continue it.
const [, second, leaver] = await begun();
const heir = shell.subscribe({ subscription: second, from_seq: 0 });
await Promise.resolve();
leaver.end();
const heard = await heir;
found.left = [(await heard.next()).value.text];
heard.end();
found.ended = (await failure(shell.call("subscribe", { subscription: second }))).kind;
const [, third, last] = await begun();
const refused = shell.subscribe({ subscription: third, from_seq: 1_000 });
await Promise.resolve();
last.end();
found.refused = [(await failure(refused)).kind];
found.refused.push((await failure(shell.call("subscribe", { subscription: third }))).kind);

// No command has the key of a stream.
const unknownKey = { idempotency_key: "unknown", key_must_exist: true };
found.unknownKey = (await failure(shell.stream("true", unknownKey).next())).kind;

// The target of a subscription is lost.
const file = `${os.tmpdir()}/npm_events_${process.pid}`;
const argv = ["sh", "-c", `echo $$ > ${file}; exec "$@"`, "sh", ...command];
await shell.call("add_target", { name: "box", argv });
const far = await shell.start("sleep 300", { target: "box" });
const taken = await shell.start("echo out", { target: "box" });
await shell.call("bash_output", { bash_id: taken.id, wait: 10_000, until: "exit" });
found.taken = await all(taken, ({ event, target }) => `${event} ${target}`);
const [everything, iterated] = [await shell.subscribe({ target: "box" }), far[Symbol.asyncIterator]()];
const lost = [failure(everything.next()), failure(iterated.next())];
await shell.call("ping", {});
process.kill(Number(fs.readFileSync(file, "utf8")), "SIGKILL");
found.lost = (await Promise.all(lost)).map(({ kind }) => kind);
await shell.close();
// The client may have connected to the target again, so remove the file last.
fs.rmSync(file);
process.stdout.write(JSON.stringify(found));
