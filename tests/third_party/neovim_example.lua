-- Drives the example as its user would, by commands, and reports what the buffers show.

vim.g.shelld_command = vim.fn.json_decode(vim.env.DAEMON)

local function wait(condition, what)
  assert(vim.wait(60000, condition, 5), what)
end

local function text_of(buffer)
  local text = table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), "\n")
  return (text:gsub("\n+$", ""):gsub("after %d+%.%d s", "after N s"))
end

-- Run a command of the example, and return its buffer.
local function start(command)
  vim.cmd("only")
  vim.cmd(command)
  return vim.api.nvim_get_current_buf()
end

-- Wait until a buffer shows a pattern, and return its text.
local function shows(buffer, pattern)
  assert(vim.wait(60000, function()
    return text_of(buffer):find(pattern) ~= nil
  end, 5), "not shown: " .. pattern .. "\n" .. text_of(buffer))
  return text_of(buffer)
end

local function open_gate(name)
  vim.fn.writefile({ "open" }, name)
end

local function is_alive(pid)
  return vim.loop.kill(tonumber(pid), 0) == 0
end

local report = {}
report.first = shows(start("Shelld cd / && pwd; echo to stderr >&2; exit 3"), "exit code 3")
report.second = shows(start("Shelld pwd"), "exit code 0")

-- A command has as many columns as its window has beside the numbers of lines.
vim.o.number = true
local numbered = start("Shelld stty size")
local info = vim.fn.getwininfo(vim.fn.bufwinid(numbered))[1]
local room = info.height .. " " .. info.width - info.textoff
report.fits = shows(numbered, "after N s"):match("%d+ %d+") == room
vim.o.number = false

-- Both commands write while both run. Each waits for its gate between two lines.
local script = "ShelldFollow sh $FOLDER/steps "
local left, right = start(script .. "left"), start(script .. "right")
shows(left, "left 1")
shows(right, "right 1")
open_gate(vim.env.FOLDER .. "/right")
shows(right, "right 2")
open_gate(vim.env.FOLDER .. "/left")
report.left, report.right = shows(left, "after N s"), shows(right, "after N s")

local parent = start("ShelldFollow sleep 300 & echo pid $!; wait")
local child = shows(parent, "pid %d+"):match("pid (%d+)")
report.ran = is_alive(child)
vim.cmd("ShelldKill")
report.killed = shows(parent, "after N s"):gsub("pid %d+", "pid PID")
wait(function()
  return not is_alive(child)
end, "the end of the tree")

-- Neovim does nothing else until the command has written everything, twice.
local function block_until_exists(name)
  while not vim.loop.fs_stat(vim.env.FOLDER .. "/" .. name) do
    vim.loop.sleep(5)
  end
end
local flood = start("ShelldFollow sh $FOLDER/flood")
shows(flood, "y")
block_until_exists("flooded")
-- Once this command has ended, the editor has read everything.
shows(start("ShelldFollow true"), "after N s")
open_gate(vim.env.FOLDER .. "/more")
shows(flood, "next")
open_gate(vim.env.FOLDER .. "/again")
block_until_exists("flooded again")
-- The terminal of the flood keeps 10,000 lines. If so many lines follow a loss, the text does not show
-- the loss.
local text, skipped = shows(flood, "after N s"), 0
for loss in text:gmatch("%[(%d+) bytes skipped%]") do
  skipped = skipped + tonumber(loss)
end
local _, lines = text:gsub("\n", "")
report.flood = skipped < 12000000 and (0 < skipped or 9000 < lines)

local handed_over = start("Shelld sh $FOLDER/steps over")
shows(handed_over, "over 1")
vim.cmd("ShelldBackground")
open_gate(vim.env.FOLDER .. "/over")
report.handed_over = shows(handed_over, "after N s")

local silent = start("Shelld sleep 300")
vim.cmd("ShelldKill")
report.silent = shows(silent, "after N s")

-- A task ends with its buffer.
local deleted = start("ShelldFollow echo pid $$; exec sleep 300")
local pid = shows(deleted, "pid %d+"):match("pid (%d+)")
vim.cmd("bdelete!")
wait(function()
  return not is_alive(pid)
end, "the end of the task")

local lost = start("ShelldFollow echo lost; sleep 300")
shows(lost, "lost")
local own = vim.fn.getpid()
local children = vim.fn.readfile("/proc/" .. own .. "/task/" .. own .. "/children", "b")[1]
for child_pid in children:gmatch("%d+") do
  vim.loop.kill(tonumber(child_pid), "sigkill")
end
report.lost = shows(lost, "has ended")

-- The next task starts another daemon.
report.blocked = shows(start("Shelld rm -rf /"), "%[")

vim.fn.writefile({ vim.fn.json_encode(report) }, vim.env.REPORT)
