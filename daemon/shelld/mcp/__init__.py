"""Implements the methods of MCP in both eras (see `revisions`), with the tools of `call_tool`.

This package runs no command itself. Calls of tools go through the toolbox, as those of
``call_tool`` do. This package owns the envelope: the revision of a message (`revisions`), the
declarations of its client (`capabilities`), the shape of its results (`methods`, `results`), and
progress notifications (`progress`). It also owns the tasks of the extension (`tasks` and the
modules around it).
"""
