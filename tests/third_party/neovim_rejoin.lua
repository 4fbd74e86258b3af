-- Reports whether the example shows the command that has ended while no Neovim was attached.

vim.g.shelld_command = vim.json.decode(vim.env.DAEMON)
vim.g.shelld_attach = "work"
if vim.env.LATE then
  -- Neovim has been attached for an hour.
  vim.cmd("ShelldFollow true")
  local time, date = os.time, os.date
  os.time = function(parts)
    return parts and time(parts) or time() + 3600
  end
  os.date = function(format, seconds)
    return date(format, seconds or os.time())
  end
end
vim.cmd("ShelldRejoin")
local is_shown = vim.wait(30000, function()
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    local name = vim.api.nvim_buf_get_name(buffer)
    if name:find("shelld://", 1, true) and not name:find("/true$") then
      return true
    end
  end
end)
vim.fn.writefile({ vim.json.encode({ shown = is_shown }) }, vim.env.REPORT)
