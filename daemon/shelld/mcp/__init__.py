"""MCP's methods, in both eras, over the same tools that everybody has.

Nothing here runs a command: a call goes through the toolbox, as ``call_tool`` does. What is MCP's
own is the envelope: which revision a message is of (`revisions`), what its results look like
(`methods`), and that a client hears from a call that takes long (`progress`).
"""
