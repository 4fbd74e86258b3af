-- Run shell commands from Neovim: show their output in a buffer, follow them while they run, end
-- them reliably.
--
-- Copy this file to ~/.config/nvim/plugin/, and have `shelld` on the PATH (or set g:shelld_command).
--
--   :Shelld make -j4          run it, and show what it wrote and how it ended
--   :Shelld! git push         the same, on a terminal: if it waits for input, you can answer
--   :ShelldBackground         in its buffer, or <LocalLeader>b: wait for it no longer, but show
--                             what it writes as it comes
--   :ShelldFollow npm run dev run it in the background, and show what it writes as it comes
--   :ShelldTerminal python3   run it in a terminal that you can type into
--   :ShelldKill               in its buffer: end it and everything it has started
--
-- It speaks to the daemon with the client that Neovim has for language servers. Commands share one
-- session, as in a terminal: `:Shelld cd build` also applies to the next one. All of them end with
-- Neovim.

local rpc
-- The buffers that wait for a command, and the ids of their requests.
local foreground = {}

local function connect()
  if rpc then
    return rpc
  end
  local command = vim.g.shelld_command or { "shelld" }
  local dispatchers = {
    notification = function() end,
    server_request = function() end,
    on_error = function() end,
    on_exit = function()
      rpc, foreground = nil, {}
    end,
  }
  if vim.fn.has("nvim-0.8") == 1 then
    rpc = vim.lsp.rpc.start(command, dispatchers)
  else
    rpc = vim.lsp.rpc.start(command[1], vim.list_slice(command, 2), dispatchers)
  end
  return rpc
end

local function tell(message, level)
  vim.notify("shelld: " .. message, level)
end

-- Send a request and return its id. `on_answer` is called first, whatever the answer is.
local function request(method, params, on_result, on_answer)
  local _, id = connect().request(method, params, function(failure, result)
    if on_answer then
      on_answer()
    end
    if failure then
      tell(failure.message, vim.log.levels.ERROR)
    else
      on_result(result)
    end
  end)
  return id
end

local function background()
  local id = foreground[vim.api.nvim_get_current_buf()]
  if id then
    -- The answer to that request shows the rest.
    request("background", { request_id = id }, function() end)
  else
    tell("nothing runs in the foreground of this buffer", vim.log.levels.WARN)
  end
end

local function open_buffer(title)
  vim.cmd("botright new")
  local buffer = vim.api.nvim_get_current_buf()
  vim.bo[buffer].buftype = "nofile"
  vim.bo[buffer].bufhidden = "hide"
  vim.bo[buffer].swapfile = false
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, { "$ " .. title, "" })
  -- <C-b> alone pages back.
  vim.keymap.set("n", "<LocalLeader>b", background, { buffer = buffer })
  return buffer
end

-- Append text to the last line of a buffer, and keep windows that show its end there.
local function append(buffer, text)
  if text == "" or not vim.api.nvim_buf_is_valid(buffer) then
    return
  end
  local count = vim.api.nvim_buf_line_count(buffer)
  local last = vim.api.nvim_buf_get_lines(buffer, count - 1, count, false)[1]
  local lines = vim.split(last .. text, "\n", { plain = true })
  vim.api.nvim_buf_set_lines(buffer, count - 1, count, false, lines)
  for _, window in ipairs(vim.fn.win_findbuf(buffer)) do
    if vim.api.nvim_win_get_cursor(window)[1] >= count then
      vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(buffer), 0 })
    end
  end
end

local function ending(result)
  local how = result.status
  if type(result.exitCode) == "number" then
    how = "exit code " .. result.exitCode
  elseif type(result.signal) == "string" then
    how = result.signal
  end
  return string.format("[%s after %d ms]\n", how, result.durationMs)
end

-- Read what the command of `call.bash_id` writes, until it ends. Each read waits in the daemon
-- until there is something new; nothing polls.
local function read_on(call, show)
  call.wait = 60000
  request("bash_output", call, function(output)
    local is_over = not (output.isRunning or output.more)
    show(output.stdout .. output.stderr .. (is_over and ending(output) or ""), is_over)
    if call.stdout_offset then
      call.stdout_offset = output.stdoutRange["end"]
    end
    if not is_over then
      read_on(call, show)
    end
  end)
end

local function show_output(buffer, id)
  read_on({ bash_id = id }, function(text)
    append(buffer, text)
  end)
end

local function follow(command)
  local buffer = open_buffer(command)
  request("bash", { command = command, run_in_background = true }, function(job)
    vim.b[buffer].shelld_id = job.bash_id
    show_output(buffer, job.bash_id)
  end)
end

local function size_of(window)
  return vim.api.nvim_win_get_height(window), vim.api.nvim_win_get_width(window)
end

-- Show the terminal of a shell in a buffer, and pass on what is typed there.
local function show_terminal(buffer, id)
  local is_showing, is_over = false, false
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, {})
  local channel = vim.api.nvim_open_term(buffer, {
    on_input = function(_, _, _, keys)
      -- The daemon answers what programs ask their terminal, so Neovim's own answers are dropped.
      if not is_showing and not is_over then
        request("write_stdin", { bash_id = id, text = keys }, function() end)
      end
    end,
  })
  local resized = vim.fn.exists("##WinResized") == 1 and "WinResized" or "VimResized"
  local events = vim.api.nvim_create_augroup("shelld_" .. id, {})
  vim.api.nvim_create_autocmd(resized, {
    group = events,
    callback = function()
      local window = vim.fn.bufwinid(buffer)
      if window ~= -1 then
        local rows, cols = size_of(window)
        request("resize_shell", { bash_id = id, rows = rows, cols = cols }, function() end)
      end
    end,
  })
  vim.api.nvim_create_autocmd("BufDelete", {
    group = events,
    buffer = buffer,
    callback = function()
      request("kill_shell", { shell_id = id }, function() end)
    end,
  })
  -- The offset: write_stdin returns output, too, and must not take any from these reads.
  read_on({ bash_id = id, stdout_offset = 0, strip_ansi = false }, function(text, was_last)
    if vim.api.nvim_buf_is_valid(buffer) then
      is_showing = true
      vim.api.nvim_chan_send(channel, text)
      is_showing = false
    end
    if was_last then
      is_over = true
      vim.api.nvim_del_augroup_by_id(events)
    end
  end)
end

local function run_in_terminal(command)
  local buffer = open_buffer(command)
  local rows, cols = size_of(0)
  local call = { command = command, tty = true, rows = rows, cols = cols, run_in_background = true }
  request("bash", call, function(job)
    vim.b[buffer].shelld_id = job.bash_id
    show_terminal(buffer, job.bash_id)
    vim.cmd("startinsert")
  end)
end

local function end_shell(id)
  request("kill_shell", { shell_id = id }, function(result)
    tell(result.message)
  end)
end

-- Wait for a command. With `may_ask`, it has a terminal, which is shown once it waits for input.
local function run(command, may_ask)
  local buffer = open_buffer(command)
  local call = { command = command, on_timeout = "background" }
  if may_ask then
    call.tty, call.on_prompt = true, "background"
    call.rows, call.cols = size_of(0)
  end
  foreground[buffer] = request("bash", call, function(result)
    if result.status ~= "running" then
      append(buffer, (result.stdout .. result.stderr):gsub("\r\n", "\n") .. ending(result))
      return
    end
    local id, prompt = result.bash_id, result.prompt
    if not vim.api.nvim_buf_is_valid(buffer) then
      end_shell(id)
      return
    end
    vim.b[buffer].shelld_id = id
    if type(prompt) == "table" then
      tell(prompt.program .. " waits for input; press i in its window to answer")
    else
      tell(id .. " continues in the background")
    end
    if may_ask then
      show_terminal(buffer, id)
    else
      append(buffer, "[" .. id .. " continues in the background]\n")
      show_output(buffer, id)
    end
  end, function()
    foreground[buffer] = nil
  end)
end

local function kill()
  local id = vim.b.shelld_id
  if not id then
    tell("nothing runs in this buffer", vim.log.levels.WARN)
    return
  end
  end_shell(id)
end

local function define(name, action, takes_command, takes_bang)
  vim.api.nvim_create_user_command(name, function(given)
    action(given.args, given.bang)
  end, {
    nargs = takes_command and "+" or 0,
    complete = takes_command and "shellcmd" or nil,
    bang = takes_bang,
  })
end

define("Shelld", run, true, true)
define("ShelldFollow", follow, true)
define("ShelldTerminal", run_in_terminal, true)
define("ShelldBackground", background)
define("ShelldKill", kill)
