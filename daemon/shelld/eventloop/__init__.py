"""What the asyncio event loop lacks: readiness, idle tasks, and the return of memory."""
