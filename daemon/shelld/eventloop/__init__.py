"""Adds cheap waits and reusable tasks to the asyncio event loop, and returns freed memory to the
system.
"""
