// Runs the npm client with peers that send odd messages, and without descriptors. Argument: the
// compiled client. The script prints the results as JSON.
import fs from "node:fs";
import { pathToFileURL } from "node:url";

const { Client } = await import(pathToFileURL(process.argv[2]).href);
const found = {};
const messageOf = (promise) => promise.catch((error) => error.message);

// This peer answers the client's own first request, and runs `rest` after the second.
const peer = (rest) => ["sh", "-c", `read a; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; read b; ${rest}; exec sleep 300`];
const line = (members) => JSON.stringify({ jsonrpc: "2.0", ...members });
const answer = line({ id: 2, result: { exitCode: 0 } });
const end = { seq: 2, requestId: 2, bash_id: "b", stdoutBytes: 0, stderrBytes: 0 };
const exited = line({ method: "shell/exited", params: { ...end, leftover: [] } });
const lines = {
  nullError: [line({ id: 2, result: { exitCode: 0 }, error: null }), exited],
  textError: [line({ id: 2, error: "odd" })],
  nullData: [line({ id: 2, error: { code: 1, message: "odd", data: null } })],
  textData: [line({ id: 2, error: { code: 1, message: "odd", data: "bash_id" } })],
  nullNamelessError: [line({ id: null, error: null })],
  list: [`[${answer}]`],
  textId: [line({ id: "2", result: {} })],
  fraction: [line({ id: 2.5, result: {} })],
  nothing: [line({ id: 2 })],
  oddMethod: [line({ method: {} })],
  echo: [line({ id: 2, method: "bash", params: {} })],
  outputWithoutText: [line({ method: "shell/output", params: { seq: 1, requestId: 2 } }), answer, exited],
  exitWithoutProcesses: [line({ method: "shell/exited", params: end }), answer, exited],
};
const oddResults = { null: null, number: 7, text: "odd", list: [], empty: {} };
const outputOf = async (stream) => {
  const texts = [];
  for await (const { text } of stream) texts.push(text);
  return texts;
};
const inOrder = Object.entries(lines).map(async ([name, each]) => {
  const command = peer(each.map((text) => `echo '${text}'`).join("; "));
  const [one, other] = [new Client({ command }), new Client({ command })];
  const results = await Promise.all([
    messageOf(one.call("bash", { command: "true" }).then(() => ({}))),
    messageOf(outputOf(other.stream("true"))),
  ]);
  await Promise.all([one.close(), other.close()]);
  found[name] = results;
});
await Promise.all(inOrder);

// These peers give results of an odd form for a stream, for a start, and for a read of a job.
found.oddResults = {};
const inForms = Object.entries(oddResults).map(async ([name, result]) => {
  const odd = { command: peer(`echo '${line({ id: 2, result })}'`) };
  const started = line({ id: 2, result: { bash_id: "b", pid: 1 } });
  const late = { command: peer(`echo '${started}'; read c; echo '${line({ id: 3, result })}'`) };
  const [streaming, starting, reading] = [new Client(odd), new Client(odd), new Client(late)];
  const kindOf = (promise) => promise.then(() => "none", (error) => error.name);
  found.oddResults[name] = await Promise.all([
    kindOf(outputOf(streaming.stream("true"))),
    kindOf(starting.start("true")),
    kindOf(reading.start("true").then((job) => job.output())),
  ]);
  await Promise.all([streaming.close(), starting.close(), reading.close()]);
});
await Promise.all(inForms);

// This peer's match is at no place of a stream.
const begun = line({ id: 2, result: { bash_id: "b", pid: 1 } });
const place = { start: 0, end: 0 };
const matched = { stdout: "", stderr: "", stdoutRange: place, stderrRange: place, matched: {} };
const matching = new Client({ command: peer(`echo '${begun}'; read c; echo '${line({ id: 3, result: matched })}'`) });
found.oddMatch = await messageOf(matching.start("true").then((job) => job.waitFor({ text: "x" })));
await matching.close();

const unnamed = new Client({ command: peer(`echo '${answer}'`) });
found.unnamed = await messageOf(unnamed.subscribe());
await unnamed.close();
const endless = new Client({ command: peer("exec cat /dev/zero"), startTimeout: 60_000 });
found.endless = await messageOf(endless.call("ping", {}));
await endless.close();

const files = [];
try {
  for (;;) files.push(fs.openSync("/dev/null"));
} catch {
  // The process has no more descriptors.
}
const unstarted = new Client({ command: ["sleep", "300"] });
const failed = messageOf(unstarted.call("ping", {}));
for (const each of files) fs.closeSync(each);
found.shortage = await failed;
await unstarted.close();
const homeless = new Client({ command: ["sleep", "300"], cwd: "/nowhere" });
found.noDirectory = await messageOf(homeless.call("ping", {}));
await homeless.close();
const wrong = [{ command: [] }, { command: "sleep" }, { command: ["sleep", 300] }, { args: "-x" }, { args: {} }, { startTimeout: NaN }, { startTimeout: -1 }];
found.refusedOptions = wrong.map((each) => {
  try {
    return new Client({ command: ["sleep", "300"], ...each });
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
});
process.stdout.write(JSON.stringify(found));
