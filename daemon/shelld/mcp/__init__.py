"""Implements the methods of MCP in both eras (see `revisions`), with the tools of `call_tool`.

This package runs no command itself. Calls of tools go through the toolbox, as the calls of
``call_tool`` do. This package owns the rules that hold for all messages: which revision a message
has (`revisions`), what its client has declared (`capabilities`), which form results have
(`methods`, `results`), and when progress is reported (`progress`). It also owns the tasks of the
extension (`tasks` and the modules around it).
"""
