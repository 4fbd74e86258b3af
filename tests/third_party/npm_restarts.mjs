// What the npm client keeps when a daemon dies or the client ends; prints what it finds as JSON.

import { mkdirSync, readFileSync, rmdirSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [program, folder, ...command] = process.argv.slice(2);
const { Client } = await import(pathToFileURL(program));
const found = {};
const failure = (promise) => promise.then(() => null, (error) => error);

async function die(shell) {
  const inFlight = failure(shell.bash("sleep 300", { session: null }));
  process.kill((await shell.call("server_info", {})).pid, "SIGKILL");
  await inFlight;
}

const odd = `${folder}/it's a "directory"`;
const deleted = `${folder}/deleted`;
mkdirSync(odd);
mkdirSync(deleted);
const restarts = [];
const onRestart = (cause, directories) => restarts.push([cause.name, Object.fromEntries(directories)]);
const keeping = new Client({ command, restart: true, keepDirectories: true, onRestart });
await keeping.bash("cd /usr");
await keeping.stream('cd -- "$D"', { session: "streamed", env: { D: odd } }).result;
await keeping.bash("cd /tmp", { session: "closed" });
await keeping.call("close_session", { session: "closed" });
await keeping.bash('cd "$D"', { session: "deleted", env: { D: deleted } });
await keeping.call("add_target", { name: "far", argv: command });
await keeping.bash("cd /tmp", { session: "at target", target: "far" });
await (await keeping.start("true", { session: "started at target", target: "far" })).wait();
rmdirSync(deleted);
const slow = keeping.stream("cd /", { session: "busy" });
const quick = keeping.bash("sleep 0.2; cd /usr", { session: "busy" });
// Both answers wait for this program, and it gets them at the same time.
await keeping.call("ping");
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
await Promise.all([slow.result, quick]);
await die(keeping);
found.directory = (await keeping.bash("pwd")).stdout;
found.places = [];
for (const session of ["at target", "started at target"]) {
  found.places.push((await keeping.bash("true", { session })).bash_id.split(":")[0]);
}
found.restarts = restarts;
await keeping.close();

// A session stays at the target of a first command that has failed, but not if nothing was begun.
const placed = new Client({ command, restart: true });
await placed.call("add_target", { name: "far", argv: command });
await placed.call("add_target", { name: "nowhere", argv: ["false"] });
const far = (session) => ({ session, target: "far" });
found.failures = [];
const note = async (promise) => found.failures.push((await failure(promise)).kind);
await note(placed.bash("sleep 300", { ...far("timed out"), timeout: 1000 }));
await note(placed.stream("sleep 300", { ...far("streamed"), timeout: 1000 }).result);
await note(placed.start("true", { ...far("started"), cwd: "/no/such/directory" }));
await note(placed.bash("true", { session: "unknown", target: "unknown" }));
await note(placed.bash("true", { session: "unsent", target: "nowhere" }));
await note(placed.bash("true", { ...far("aborted"), signal: AbortSignal.abort() }));
await placed.call("bash", { command: "true", ...far("dry"), dry_run: true });
await placed.bash("true", far("closed"));
await die(placed);
await note(placed.call("close_session", { session: "closed" }));
found.failedPlaces = {};
for (const session of ["timed out", "streamed", "started", "unknown", "unsent", "aborted", "dry", "closed"]) {
  const { bash_id: id } = await placed.bash("true", { session });
  found.failedPlaces[session] = id.replace(/shell_.*/, "");
}
await placed.close();

const configured = new Client({ command, restart: true });
for (const name of ["far", "far:inner", "near"]) {
  await configured.call("add_target", { name, argv: command });
}
await configured.call("remove_target", { name: "far" });
await configured.call("ping");
await configured.call("configure_session", { session: "there", limits: { open_files: 76 }, target: "near" });
await configured.call("configure_session", { session: "there", limits: { open_files: 77 } });
const reused = { session: "few", limits: { open_files: 78 } };
const answer = configured.call("configure_session", reused);
reused.limits.open_files = 79;
reused.session = "more";
await answer;
await configured.call("configure_session", reused);
await die(configured);
found.limits = [];
for (const session of ["there", "few", "more"]) {
  const { bash_id: id, stdout } = await configured.bash("ulimit -n", { session });
  found.limits.push([id.replace(/shell_.*/, ""), stdout]);
}
await configured.close();

found.withoutRestart = [{ keepDirectories: true }, { onRestart }].map((options) => {
  try {
    return new Client({ command, ...options });
  } catch ({ name }) {
    return name;
  }
});

const forgetting = new Client({ command, restart: true, onRestart, cwd: folder });
await forgetting.bash("cd /usr");
await die(forgetting);
found.forgotten = (await forgetting.bash("pwd")).stdout === `${folder}\n`;
await forgetting.close();

const attach = [...command, "attach", "--name", "npm"];
const first = new Client({ command: attach });
const { id } = await first.start("sleep 300");
await first.bash("cd /usr; x=1");
await first.close();
const second = new Client({ command: attach });
const { shells } = await second.call("list_shells", {});
const kept = shells.some((each) => each.bash_id === id && each.status === "running");
found.attached = [kept, (await second.bash("echo $PWD $x")).stdout];
await second.killShell(id);
await second.close();

// The second daemon of this client never answers. An aborted call does not wait for it.
const silence = 'mkdir "$0" 2>/dev/null && exec "$@"; exec sleep 300';
const silent = new Client({
  command: ["sh", "-c", silence, `${folder}/begun`, ...command],
  restart: true,
  startTimeout: 20_000,
});
await die(silent);
const stop = new AbortController();
const { signal } = stop;
const waiting = [failure(silent.bash("true", { signal })), failure(silent.stream("true", { signal }).next())];
stop.abort();
found.aborted = (await Promise.all(waiting)).map(({ kind }) => kind);
await silent.close();

// A stream that was aborted already starts no daemon.
const counted = ["sh", "-c", 'echo start >> "$0"; exec "$@"', `${folder}/starts`, ...command];
const counting = new Client({ command: counted, restart: true });
await die(counting);
await failure(counting.stream("true", { signal: AbortSignal.abort() }).result);
await counting.close();
found.starts = readFileSync(`${folder}/starts`, "utf8");

console.log(JSON.stringify(found));
