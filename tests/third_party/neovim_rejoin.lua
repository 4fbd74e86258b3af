-- Reports whether the example shows the command that has ended while no Neovim was attached.

vim.g.shelld_command = vim.json.decode(vim.env.DAEMON)
vim.g.shelld_attach = "work"
vim.cmd("ShelldRejoin")
local is_shown = vim.wait(30000, function()
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(buffer):find("shelld://", 1, true) then
      return true
    end
  end
end)
vim.fn.writefile({ vim.json.encode({ shown = is_shown }) }, vim.env.REPORT)
