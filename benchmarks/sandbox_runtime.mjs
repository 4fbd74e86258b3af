// Runs commands with @anthropic-ai/sandbox-runtime, for sandbox.py. One command is a line of stdin.
// When it has ended, its exit status is a line of stdout. The first argument is the directory of
// the package.
//
// The manager is started once, as an agent does. Its proxies run, and no host is allowed.

import { spawn } from "node:child_process";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const main = path.join(process.argv[2], "dist", "index.js");
const { SandboxManager } = await import(pathToFileURL(main));
await SandboxManager.initialize({
  filesystem: { denyRead: [], allowWrite: ["."], denyWrite: [] },
  network: { allowedDomains: [], deniedDomains: [] },
});

async function run(command) {
  const wrapped = await SandboxManager.wrapWithSandbox(command, "bash");
  const child = spawn(wrapped, { shell: "/bin/bash", stdio: ["ignore", "pipe", "pipe"] });
  child.stdout.resume();
  child.stderr.resume();
  return new Promise((resolve) => child.on("close", resolve));
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  process.stdout.write(`${await run(line)}\n`);
}
await SandboxManager.reset();
process.exit(0);
