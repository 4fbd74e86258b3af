-- Run shell commands from Neovim: see their output as it comes, answer their questions, end them
-- reliably.
--
-- Copy this file to ~/.config/nvim/plugin/, and have `shelld` on the PATH (or set g:shelld_command).
--
--   :Shelld cd build && make  run it as the next command of the session
--   :ShelldBackground         in its buffer, or <LocalLeader>b: hand it over to the background
--   :ShelldFollow npm run dev run it in the background from the start
--   :ShelldTerminal python3   run it in the background, and type into it
--   :ShelldKill               in its buffer: end it and everything it has started
--   :ShelldRejoin             show what the last Neovim has left, see below
--
-- Each command has a terminal, so it can use colours, and ask. If it asks for a line, you are asked
-- here. For anything else, press i in its window and type.
--
-- It speaks to the daemon with the client that Neovim has for language servers. Commands share one
-- session, as in a terminal: `:Shelld cd build` also applies to the next one. All of them end with
-- Neovim, unless g:shelld_attach is the name of a lasting daemon, such as that of the project:
--
--   let g:shelld_attach = "project"
--   autocmd VimEnter * ShelldRejoin
--
-- Then commands go on when Neovim ends, for up to an hour. The next Neovim shows the commands that
-- still run or have ended meanwhile, with all their output.

local rpc
-- The time at which the connection began, in seconds since 1970.
local connected_at
-- The commands that run. The keys are the ids of their requests, which their events carry.
local tasks = {}

-- Whether the user is asked something now.
local is_asking = false

-- The exit code of `shelld attach` if another client has the daemon.
local OCCUPIED = 4

local function tell(message, level)
  vim.notify("shelld: " .. message, level)
end

-- During a question, Neovim does not redraw its terminals by itself. A terminal does not change at
-- once, so wait a moment.
local function redraw_soon()
  vim.defer_fn(function()
    vim.cmd("redraw")
  end, 50)
end

local function show(task, text)
  if vim.api.nvim_buf_is_valid(task.buffer) then
    task.is_showing = true
    vim.api.nvim_chan_send(task.channel, text)
    task.is_showing = false
    task.is_in_line = text:sub(-1) ~= "\n"
    if is_asking then
      redraw_soon()
    end
  end
end

local function show_note(task, note)
  show(task, (task.is_in_line and "\r\n" or "") .. "[" .. note .. "]\r\n")
end

local function finish(id, note)
  local task = tasks[id]
  if task then
    tasks[id] = nil
    show_note(task, note)
    vim.api.nvim_del_augroup_by_id(task.autocmds)
  end
end

local handlers = {}

local function connect()
  if rpc then
    return rpc
  end
  local command = vim.list_extend({}, vim.g.shelld_command or { "shelld" })
  if vim.g.shelld_attach then
    vim.list_extend(command, { "attach", "--name", vim.g.shelld_attach })
  end
  local dispatchers = {
    notification = function(method, event)
      local task, handle = tasks[event.requestId], handlers[method]
      if task and handle then
        task.id = event.bash_id
        handle(task, event)
      end
    end,
    server_request = function() end,
    on_error = function() end,
    on_exit = vim.schedule_wrap(function(exit_code)
      rpc = nil
      local reason = "the daemon has ended"
      if exit_code == OCCUPIED then
        reason = "another editor is attached to " .. vim.g.shelld_attach
        tell(reason, vim.log.levels.ERROR)
      end
      for id in pairs(tasks) do
        finish(id, reason)
      end
    end),
  }
  connected_at = os.time()
  if vim.fn.has("nvim-0.8") == 1 then
    rpc = vim.lsp.rpc.start(command, dispatchers)
  else
    rpc = vim.lsp.rpc.start(command[1], vim.list_slice(command, 2), dispatchers)
  end
  return rpc
end

-- Send a request and return its id.
local function request(method, params, on_result, on_failure)
  local _, id = connect().request(method, params, function(failure, result)
    if not failure then
      if on_result then
        on_result(result)
      end
    elseif on_failure then
      on_failure(failure.message)
    else
      tell(failure.message, vim.log.levels.ERROR)
    end
  end)
  return id
end

-- Send a request about the command of a task. A foreground call that has sent no event yet is known
-- by its request only.
local function request_about(task, method, params, on_failure)
  if task.id then
    params.bash_id = task.id
  else
    params.request_id = task.request
  end
  request(method, params, nil, on_failure)
end

-- Ask the user what the commands ask, one question after the other.
local function ask()
  local function next_task()
    for _, task in pairs(tasks) do
      if task.prompt then
        return task
      end
    end
  end
  if is_asking then
    return
  end
  is_asking = true
  local task = next_task()
  while task do
    local prompt = task.prompt
    local is_secret = prompt.lineMode == true and prompt.echo == false
    local cancelled = "\27"
    redraw_soon()
    -- `inputsecret` neither shows nor remembers the answer. Events still come during a question.
    local read = is_secret and vim.fn.inputsecret or vim.fn.input
    local ok, answer = pcall(read, { prompt = prompt.text .. " ", cancelreturn = cancelled })
    if task.prompt ~= prompt then
      tell(prompt.program .. " no longer waits for this answer", vim.log.levels.WARN)
    else
      task.prompt = nil
      if ok and answer ~= cancelled then
        local text = answer .. "\n"
        request("write_stdin", { bash_id = task.id, text = text, secret = is_secret })
      else
        tell(prompt.program .. " still waits; press i in its window to answer")
      end
    end
    task = next_task()
  end
  is_asking = false
end

-- A command may write faster than Neovim reads. Then the daemon skips output.
local function show_loss(task, skipped, dropped)
  task.skipped = task.skipped + skipped
  if skipped + dropped > 0 then
    show_note(task, skipped + dropped .. " bytes skipped")
  end
end

handlers["shell/output"] = function(task, event)
  show_loss(task, event.skipped, event.dropped)
  show(task, event.text)
end

handlers["shell/prompt"] = function(task, event)
  task.prompt = nil
  local prompt = event.prompt
  local is_typing = vim.api.nvim_get_mode().mode == "t"
    and vim.api.nvim_get_current_buf() == task.buffer
  if type(prompt) ~= "table" or is_typing then
    return
  elseif prompt.lineMode == false then
    tell(prompt.program .. " waits for keys; press i in its window to type")
  else
    task.prompt = prompt
    ask()
  end
end

handlers["shell/exited"] = function(task, event)
  -- This event counts all skipped bytes.
  show_loss(task, event.skipped - task.skipped, 0)
  local how = event.status
  if type(event.exitCode) == "number" then
    how = "exit code " .. event.exitCode
  elseif type(event.signal) == "string" then
    how = event.signal
  end
  finish(event.requestId, string.format("%s after %.1f s", how, event.durationMs / 1000))
end

local function task_here()
  local buffer = vim.api.nvim_get_current_buf()
  for id, task in pairs(tasks) do
    if task.buffer == buffer then
      return id, task
    end
  end
end

local function background()
  local id, task = task_here()
  if not id or task.is_in_background then
    tell("nothing runs in the foreground of this buffer", vim.log.levels.WARN)
  else
    request("background", { request_id = id })
  end
end

local function kill(id, task)
  if task.id then
    request("kill_shell", { shell_id = task.id })
  else
    -- The id is unknown. This answers the call, and its result has the id.
    request("background", { request_id = id }, function(result)
      request("kill_shell", { shell_id = result.bash_id })
    end)
  end
end

local function kill_here()
  local id, task = task_here()
  if id then
    kill(id, task)
  else
    tell("nothing runs in this buffer", vim.log.levels.WARN)
  end
end

-- The rows and columns for text. The numbers of lines and the signs have columns of their own.
local function size_of(window)
  local info = vim.fn.getwininfo(window)[1]
  return math.max(1, info.height), math.max(1, info.width - (info.textoff or 0))
end

-- Open a terminal for a command, and pass on what is typed there.
local function open_terminal(command)
  vim.cmd("botright new")
  local task = { buffer = vim.api.nvim_get_current_buf(), skipped = 0 }
  vim.bo[task.buffer].bufhidden = "hide"
  vim.bo[task.buffer].swapfile = false
  vim.api.nvim_buf_set_name(task.buffer, "shelld://" .. task.buffer .. "/" .. command)
  task.channel = vim.api.nvim_open_term(task.buffer, {
    on_input = function(_, _, _, keys)
      -- The daemon answers what programs ask their terminal, so Neovim's own answers are dropped.
      if tasks[task.request] and not task.is_showing then
        request_about(task, "write_stdin", { text = keys })
      end
    end,
  })
  -- While the cursor is on the last line, the window follows the output.
  vim.cmd("normal! G")
  -- <C-b> alone pages back.
  vim.keymap.set("n", "<LocalLeader>b", background, { buffer = task.buffer })
  task.autocmds = vim.api.nvim_create_augroup("shelld_" .. task.buffer, {})
  local resized = vim.fn.exists("##WinResized") == 1 and "WinResized" or "VimResized"
  vim.api.nvim_create_autocmd(resized, {
    group = task.autocmds,
    callback = function()
      local window = vim.fn.bufwinid(task.buffer)
      if window ~= -1 and tasks[task.request] then
        local rows, cols = size_of(window)
        -- The command may end meanwhile.
        request_about(task, "resize_shell", { rows = rows, cols = cols }, function() end)
      end
    end,
  })
  return task
end

-- Note that the events of a request belong to a task, which ends with its buffer.
local function own(task, id)
  task.request = id
  tasks[id] = task
  vim.api.nvim_create_autocmd("BufDelete", {
    group = task.autocmds,
    buffer = task.buffer,
    callback = function()
      kill(id, task)
    end,
  })
end

local function start(command, call)
  local task = open_terminal(command)
  call.command = command
  call.tty, call.strip_ansi = true, false
  call.rows, call.cols = size_of(vim.api.nvim_get_current_win())
  task.is_in_background = call.run_in_background
  local id
  id = request("bash", call, function(result)
    if result.status == "running" then
      task.id = result.bash_id
      if not task.is_in_background then
        task.is_in_background = true
        tell(result.bash_id .. " continues in the background")
      end
    end
  end, function(message)
    finish(id, message)
  end)
  own(task, id)
end

local ALL = { "output", "prompt", "exit" }

-- Show a command that an earlier Neovim has started, from its first output on.
local function rejoin_one(shell)
  local task = open_terminal(shell.command)
  task.id, task.is_in_background = shell.bash_id, true
  local id
  local call = { bash_id = shell.bash_id, events = ALL, strip_ansi = false }
  id = request("subscribe", call, nil, function(message)
    finish(id, message)
  end)
  own(task, id)
  local rows, cols = size_of(vim.api.nvim_get_current_win())
  -- It may have ended already.
  request_about(task, "resize_shell", { rows = rows, cols = cols }, function() end)
end

-- Seconds since 1970, from a time such as 2026-11-29T12:00:00.000Z.
local function seconds_of(time)
  local year, month, day, hour, min, sec = time:match("(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)")
  local offset = os.time() - os.time(os.date("!*t"))
  -- The offset does not contain daylight saving time, so the parts must not either.
  local parts = { year = year, month = month, day = day, hour = hour, min = min, sec = sec }
  parts.isdst = false
  return os.time(parts) + offset
end

local function rejoin()
  request("server_info", vim.empty_dict(), function(info)
    if not info.attachment then
      return tell("g:shelld_attach is not set", vim.log.levels.WARN)
    end
    -- The user may have run other commands since Neovim has attached.
    local left_at = connected_at - info.attachment.detachedMs / 1000
    request("list_shells", vim.empty_dict(), function(result)
      for _, shell in ipairs(result.shells) do
        local ended_at = seconds_of(shell.startedAt) + shell.durationMs / 1000
        if shell.isRunning or ended_at >= left_at - 1 then
          rejoin_one(shell)
        end
      end
    end)
  end)
end

local function run(command)
  start(command, { notify = ALL, on_timeout = "background" })
end

local function follow(command)
  start(command, { notify = ALL, run_in_background = true })
end

local function run_in_terminal(command)
  -- No prompt events: the user sees the questions in the terminal.
  start(command, { notify = { "output", "exit" }, run_in_background = true })
  vim.cmd("startinsert")
end

local function define(name, action, takes_command)
  vim.api.nvim_create_user_command(name, function(given)
    action(given.args)
  end, {
    nargs = takes_command and "+" or 0,
    complete = takes_command and "shellcmd" or nil,
  })
end

define("Shelld", run, true)
define("ShelldFollow", follow, true)
define("ShelldTerminal", run_in_terminal, true)
define("ShelldBackground", background)
define("ShelldKill", kill_here)
define("ShelldRejoin", rejoin)
