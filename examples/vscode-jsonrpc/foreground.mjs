// Run commands one after the other, and wait for each, the way an agent in VS Code would. Ctrl-B
// hands the command that runs over to the background: it continues, and the next one starts. A
// command that waits for input goes there by itself, and gets what you type. Ctrl-C ends all.
//
//   npm install vscode-jsonrpc
//   node foreground.mjs 'sleep 60; echo slow' 'read -p "Your name: "; echo "Hi $REPLY"' 'ls'
//
// It needs `shelld` on the PATH, or the environment variable SHELLD with another command line.

import { connect, disconnect } from "./daemon.mjs";

const connection = connect();
const { stdin, stdout } = process;
const endedMeanwhile = () => {};
const followed = [];
let asking;

async function run(command) {
  const result = await connection.sendRequest("bash", {
    command,
    tty: true,
    rows: stdout.rows,
    cols: stdout.columns,
    on_timeout: "background",
    on_prompt: "background",
  });
  if (result.status !== "running") {
    stdout.write(result.stdout);
    return;
  }
  const { bash_id, prompt } = result;
  if (prompt) {
    asking = bash_id;
    console.log(`[${bash_id} waits for input: ${prompt.text}]`);
  } else {
    console.log(`[${bash_id} continues in the background]`);
  }
  followed.push(follow(bash_id));
}

// What a command of the extension calls. The library keeps the ids of requests to itself, so this
// asks the daemon which shell a call waits for.
async function toBackground() {
  const { shells } = await connection.sendRequest("list_shells");
  const shell = shells.find(({ inForeground }) => inForeground);
  if (shell) {
    // The answer to the call shows the rest.
    await connection.sendRequest("background", { bash_id: shell.bash_id }).catch(endedMeanwhile);
  } else {
    console.log("[nothing runs in the foreground]");
  }
}

async function follow(bash_id) {
  // The offset: write_stdin returns output, too, and must not take it from here.
  let stdout_offset = 0;
  let output;
  do {
    // Waits in the daemon until there is something new; nothing polls.
    output = await connection.sendRequest("bash_output", { bash_id, stdout_offset, wait: 60_000 });
    stdout_offset = output.stdoutRange.end;
    stdout.write(output.stdout);
  } while (output.isRunning || output.more);
  if (asking === bash_id) asking = undefined;
  console.log(`[${bash_id} ended: ${output.signal ?? `exit code ${output.exitCode}`}]`);
}

if (stdin.isTTY) stdin.setRawMode(true);
stdin.setEncoding("utf8");
stdin.on("data", (text) => {
  if (text === "\x02") {
    toBackground();
  } else if (text === "\x03") {
    // The daemon notices, and ends everything.
    process.exit(130);
  } else if (asking) {
    connection.sendRequest("write_stdin", { bash_id: asking, text }).catch(endedMeanwhile);
  }
});

for (const command of process.argv.slice(2)) {
  await run(command).catch((error) => console.error(error.message));
}
await Promise.all(followed);

if (stdin.isTTY) stdin.setRawMode(false);
stdin.pause();
await disconnect(connection);
