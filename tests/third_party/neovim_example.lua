-- Drives the example as its user would, by commands, and reports what the buffers show.

vim.g.shelld_command = vim.fn.json_decode(vim.env.DAEMON)

local function text()
  return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n")
end

local function shows(pattern)
  assert(vim.wait(20000, function()
    return text():find(pattern) ~= nil
  end, 5), "not shown: " .. pattern .. "\n" .. text())
end

vim.cmd("Shelld cd / && pwd; echo to stderr >&2; exit 3")
shows("exit code 3 after %d+ ms")
local first = text():gsub("%d+ ms", "N ms")

vim.cmd("Shelld pwd")
shows("exit code 0")
local second = text():gsub("%d+ ms", "N ms")

vim.cmd("ShelldFollow echo one; sleep 0.2; echo two; sleep 300")
shows("one\ntwo\n")
vim.cmd("ShelldKill")
shows("SIGTERM after")
local followed = text():gsub("%d+ ms", "N ms")

vim.cmd("Shelld echo one; sleep 300")
vim.cmd("ShelldBackground")
shows("background]\none\n")
vim.cmd("ShelldKill")
shows("SIGTERM after")
local handed_over = text():gsub("%d+ ms", "N ms"):gsub("shell_%x+", "shell_N")

vim.fn.writefile({ vim.fn.json_encode({ first, second, followed, handed_over }) }, vim.env.REPORT)
