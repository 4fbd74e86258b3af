"""MCP's methods in both eras, over the same tools as `call_tool`.

Nothing here runs a command: calls go through the toolbox, as in ``call_tool``. This package owns
the envelope: the revision of a message (`revisions`), the declarations of its client
(`capabilities`), the shape of its results (`methods`, `results`), and progress notifications
(`progress`). It also owns the tasks of the extension (`tasks` and the modules around it).
"""
