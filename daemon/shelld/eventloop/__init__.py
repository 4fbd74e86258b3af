"""Extends the asyncio event loop: its tasks can wait at little cost and can be reused, and freed
memory goes back to the system.
"""
