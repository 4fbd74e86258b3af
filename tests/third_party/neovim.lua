-- Acts as a Neovim plugin, with Neovim's library for language servers. The script reports to the
-- file $REPORT, as JSON. The daemon's command is in $DAEMON, as a JSON array.

local command = vim.fn.json_decode(vim.env.DAEMON)
local errors = {}
local dispatchers = {
  notification = function(method)
    table.insert(errors, "notification " .. method)
  end,
  on_error = function(code, message)
    table.insert(errors, "error " .. code .. " " .. vim.inspect(message))
  end,
}
local exit_code
dispatchers.on_exit = function(code)
  exit_code = code
end

local rpc
if vim.fn.has("nvim-0.8") == 1 then
  rpc = vim.lsp.rpc.start(command, dispatchers)
else
  rpc = vim.lsp.rpc.start(command[1], vim.list_slice(command, 2), dispatchers)
end

local function send(method, params)
  local box = {}
  local _, id = rpc.request(method, params, function(failure, result)
    box.failure, box.result, box.done = failure, result, true
  end)
  box.id = id
  return box
end

local function await(box)
  assert(vim.wait(60000, function()
    return box.done
  end, 5), "no answer")
  return box.result, box.failure
end

local function call(method, params)
  return await(send(method, params))
end

local report = {}

report.ping = vim.tbl_isempty(call("ping", {}))
local foreground = call("bash", { command = "echo out; echo err >&2; exit 3" })
report.foreground = { foreground.stdout, foreground.stderr, foreground.exitCode }
local _, failure = call("bash", {})
report.failure = { failure.code, failure.message }

local job = call("bash", { command = "echo ready; sleep 300", run_in_background = true })
local first = call("bash_output", { bash_id = job.bash_id, wait = 10000 })
report.background = { first.stdout, first.isRunning }
local waiting = send("bash_output", { bash_id = job.bash_id, wait = 60000, ["until"] = "exit" })
report.killed = call("kill_shell", { shell_id = job.bash_id }).status
report.waited = await(waiting).status

-- A cancelled request is answered, but this library does not report the answer.
local slow = send("bash", { command = "sleep 300", description = "to be cancelled" })
local function status_of_slow()
  for _, shell in ipairs(call("list_shells", { session = "main" }).shells) do
    if shell.description == "to be cancelled" then
      return shell.status
    end
  end
end
assert(vim.wait(60000, function()
  return status_of_slow() == "running"
end, 5))
rpc.notify("$/cancelRequest", { id = slow.id })
assert(vim.wait(60000, function()
  return status_of_slow() == "killed"
end, 5))
report.cancelled = true

local long = call("bash", { command = "yes 0123456789012345678 | head -c 5000000" })
local rest = call("bash_output", { bash_id = long.bash_id, stdout_offset = 0, max_bytes = 8000000 })
report.long = { long.truncated, long.stdoutBytes, #rest.stdout }

local boxes = {}
for number = 1, 100 do
  boxes[number] = send("bash", { command = "echo " .. number, session = vim.NIL })
end
report.many = true
for number, box in ipairs(boxes) do
  report.many = report.many and await(box).stdout == number .. "\n"
end

report.shutdown = call("shutdown", {}) == nil
rpc.notify("exit", {})
assert(vim.wait(60000, function()
  return exit_code ~= nil
end, 5))
report.exit_code = exit_code
report.errors = #errors > 0 and errors or 0
vim.fn.writefile({ vim.fn.json_encode(report) }, vim.env.REPORT)
