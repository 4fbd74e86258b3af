// What the npm client keeps when a daemon dies or the client ends; prints what it finds as JSON.

import { mkdirSync, rmdirSync } from "node:fs";
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
rmdirSync(deleted);
await die(keeping);
found.directory = (await keeping.bash("pwd")).stdout;
found.restarts = restarts;
await keeping.close();

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

console.log(JSON.stringify(found));
