-- Reports what the example shows while another client is attached.

vim.g.shelld_command = vim.json.decode(vim.env.DAEMON)
vim.g.shelld_attach = "work"
vim.cmd("ShelldFollow true")
local shown
vim.wait(30000, function()
  shown = vim.api.nvim_buf_get_lines(0, 0, 1, false)[1]
  return shown and shown ~= ""
end)
vim.fn.writefile({ vim.json.encode({ shown = shown }) }, vim.env.REPORT)
