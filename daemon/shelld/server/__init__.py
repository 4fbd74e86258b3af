"""The JSON-RPC server: streams, framing, a task for each request, one answer for each."""
