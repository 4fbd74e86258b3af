"""Adds cheap waits, idle tasks and the return of freed memory to the asyncio event loop."""
