// Runs long commands as an MCP host would, with the official client of the Tasks extension.
// It checks each message that it gets, and reports on stdout, as JSON.
// Usage: node mcp_tasks.mjs COMMAND [ARGUMENT ...]

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { withTasks } from "@modelcontextprotocol/ext-tasks/client";

const [command, ...args] = process.argv.slice(2);
const daemon = spawn(command, args);
const ended = new Promise((resolve) => daemon.on("exit", (code) => resolve(code)));
let stderr = "";
daemon.stderr.on("data", (data) => (stderr += data));

const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {
    elicitation: {},
    extensions: { "io.modelcontextprotocol/tasks": {} },
  },
};

let lastId = 0;
const waiting = new Map();
const listeners = new Set();

function request(method, params) {
  const id = ++lastId;
  const message = { jsonrpc: "2.0", id, method, params: { ...params, _meta: META } };
  daemon.stdin.write(JSON.stringify(message) + "\n");
  return new Promise((resolve) => waiting.set(id, resolve));
}

createInterface({ input: daemon.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined) {
    for (const listener of listeners) listener(message);
    return;
  }
  waiting.get(message.id)(
    message.error ? { kind: "error", error: message.error } : { kind: "result", result: message.result },
  );
});

const report = {};
const discovered = (await request("server/discover", {})).result;
const extension = discovered.capabilities.extensions["io.modelcontextprotocol/tasks"];

const port = {
  endpointId: "shelld",
  taskCapabilities: { generation: "v2", capabilities: extension },
  invalidated: false,
  async dispatch({ method, params }) {
    const response = await request(method, params);
    if (response.result?.resultType === "task") {
      // Its notifications save the client from polling.
      request("subscriptions/listen", { notifications: { taskIds: [response.result.taskId] } });
    }
    return response;
  },
  onServerRequest: () => () => {},
  onNotification(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  onInvalidated: () => () => {},
};

const questions = [];
const errors = [];
const session = withTasks(port, {
  async onInputRequest(asked, { inputId }) {
    questions.push([inputId, asked.params.message]);
    const [name] = Object.keys(asked.params.requestedSchema.properties);
    return { action: "accept", content: { [name]: "World" } };
  },
  onError: (error) => errors.push(String(error)),
});

async function call(command, more = {}) {
  return session.callTool("Bash", { command, ...more });
}

async function textOf(execution) {
  const { outcome } = await execution.settle();
  return [execution.kind, outcome.result.content[0].text, outcome.result.isError];
}

// On a busy machine, even this call becomes a task.
report.short = (await textOf(await call("echo hi"))).slice(1);
report.background = await textOf(await call("echo hi; exit 3", { run_in_background: true }));
report.background[1] = report.background[1].split("Duration")[0];
report.long = await textOf(await call("sleep 1; echo done; exit 3"));
report.asked = await textOf(await call("read -p 'Name? ' name; echo Hello $name", { tty: true }));

const cancelled = await call("sleep 300");
await cancelled.cancel();
report.cancelled = (await cancelled.result()).status;
report.view = (await session.task(cancelled.handle.taskId).snapshot()).status;
report.unknown = await session
  .task("shell_nope")
  .snapshot()
  .catch((error) => error.code);
report.questions = questions;
report.errors = errors;

await session.close();
daemon.stdin.end();
report.exitCode = await ended;
report.stderr = stderr;
console.log(JSON.stringify(report));
