"""The JSON-RPC server.

It owns the streams and starts a task for each request, which gets one answer.
"""
