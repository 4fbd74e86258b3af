"""The JSON-RPC server.

It owns the streams, and starts a task for each request. Each request gets at most one answer.
"""
