// A task: a command in a terminal of VS Code. It has the members of a Pseudoterminal, so an
// extension can give it to a task or to a terminal:
//
//   const ask = (prompt, isSecret) =>
//     vscode.window.showInputBox({ prompt, password: isSecret, ignoreFocusOut: true });
//   new vscode.CustomExecution(async () => new Task(daemon, { command: "make" }, { ask }));
//   vscode.window.createTerminal({ name: "make", pty: new Task(daemon, { command: "make" }) });
//
// With `bash_id` in place of `command`, it shows a command that an earlier window has started:
//
//   for (const { bash_id, command: name } of await daemon.left())
//     vscode.window.createTerminal({ name, pty: new Task(daemon, { bash_id }, { ask }) });

import rpc from "vscode-jsonrpc/node";

const endedMeanwhile = () => {};

export class Task {
  #daemon;
  #params;
  #ask;
  #written = new rpc.Emitter();
  #closed = new rpc.Emitter();
  #moved = new rpc.Emitter();
  #requestId;
  #bashId;
  #answered;
  #isInForeground;
  #hasEnded = false;
  #prompt;
  #isInLine = false;
  #held = "";

  onDidWrite = this.#written.event;
  // Fires with the exit code.
  onDidClose = this.#closed.event;
  // Fires with the id of the shell, once no call waits for the command any longer.
  onDidMoveToBackground = this.#moved.event;

  // `params` are those of bash. `ask` is called with a question and whether the answer is secret,
  // and returns a promise of the answer, or of undefined. Without `ask`, the user answers by keys.
  constructor(daemon, params, { ask } = {}) {
    this.#daemon = daemon;
    this.#ask = ask;
    const events = ask ? ["output", "exit", "prompt"] : ["output", "exit"];
    this.#bashId = params.bash_id;
    this.#isInForeground = !(params.run_in_background || params.bash_id);
    this.#params = params.bash_id
      ? { ...params, strip_ansi: false, events }
      : { on_timeout: "background", ...params, tty: true, strip_ansi: false, notify: events };
  }

  open(dimensions) {
    const isLeft = Boolean(this.#bashId);
    if (dimensions && isLeft) this.setDimensions(dimensions);
    else if (dimensions) Object.assign(this.#params, sizes(dimensions));
    const onEvent = (name, event) => {
      this.#bashId ??= event.bash_id;
      if (name === "output") this.#onOutput(event);
      else if (name === "prompt") this.#onPrompt(event);
      else if (name === "exited") this.#onExited(event);
      else if (name === "lost") this.#end(event.reason, 1);
    };
    const daemon = this.#daemon;
    const { id, answer } = isLeft
      ? daemon.follow(this.#params, onEvent)
      : daemon.run(this.#params, onEvent);
    this.#requestId = id;
    this.#answered = answer.then(
      (result) => this.#onAnswer(result),
      (error) => this.#end(error.message, 1),
    );
  }

  // The user has typed into the terminal.
  handleInput(text) {
    this.#write({ text });
  }

  setDimensions(dimensions) {
    const params = { ...this.#name(), ...sizes(dimensions) };
    this.#daemon.request("resize_shell", params).catch(endedMeanwhile);
  }

  // The user has closed the terminal: end the command and all that it has started.
  async close() {
    // If a foreground call has sent no event yet, only its answer tells the id.
    if (!this.#bashId) {
      await this.toBackground();
      await this.#answered;
    }
    if (!this.#bashId) return;
    await this.#daemon.request("kill_shell", { shell_id: this.#bashId }).catch(endedMeanwhile);
  }

  // Ctrl-B calls this.
  async toBackground() {
    if (!this.#isInForeground) return;
    const params = { request_id: this.#requestId };
    await this.#daemon.request("background", params).catch(endedMeanwhile);
  }

  #onAnswer({ bash_id, status }) {
    this.#bashId = bash_id;
    if (this.#isInForeground && status === "running") this.#moved.fire(bash_id);
    this.#isInForeground = false;
  }

  #onOutput({ text, missing }) {
    if (missing > 0) this.#note(`${missing} bytes skipped`);
    this.#show(text);
  }

  async #onPrompt({ prompt }) {
    this.#prompt = prompt;
    // A program that reads single keys gets them from the terminal.
    if (!prompt || prompt.lineMode === false) return;
    const isSecret = prompt.lineMode === true && prompt.echo === false;
    const answer = await this.#ask(prompt.text, isSecret);
    // The program may wait no longer, or wait for something else.
    if (answer !== undefined && prompt === this.#prompt) {
      this.#write({ text: `${answer}\n`, secret: isSecret });
    }
  }

  #onExited({ exitCode, signal, durationMs, missing }) {
    if (missing > 0) this.#note(`${missing} bytes skipped`);
    const how = signal ?? `exit code ${exitCode}`;
    this.#end(`${how} after ${(durationMs / 1000).toFixed(1)} s`, exitCode ?? 1);
  }

  // A foreground call that has sent no event yet is known by its request only.
  #name() {
    return this.#bashId ? { bash_id: this.#bashId } : { request_id: this.#requestId };
  }

  #write(what) {
    const params = { ...this.#name(), ...what };
    // For example, the guard refuses to type a command.
    this.#daemon.request("write_stdin", params).catch((error) => {
      if (!this.#hasEnded) this.#note(error.message);
    });
  }

  // The daemon answers what the program asks its terminal. VS Code must not answer it as well.
  #show(text) {
    const all = this.#held + text;
    const start = all.search(/\x1b(\[(>?0?|[56])?)?$/);
    this.#held = start < 0 ? "" : all.slice(start);
    const shown = all.slice(0, all.length - this.#held.length).replace(/\x1b\[(>?0?c|[56]n)/g, "");
    if (!shown) return;
    this.#isInLine = !shown.endsWith("\n");
    this.#written.fire(shown);
  }

  #note(text) {
    this.#written.fire(`${this.#held}${this.#isInLine ? "\r\n" : ""}[${text}]\r\n`);
    this.#held = "";
    this.#isInLine = false;
  }

  #end(note, exitCode) {
    if (this.#hasEnded) return;
    this.#prompt = undefined;
    this.#hasEnded = true;
    this.#note(note);
    this.#closed.fire(exitCode);
  }
}

function sizes({ rows, columns }) {
  return { rows, cols: columns };
}
