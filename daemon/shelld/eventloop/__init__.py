"""What the event loop of asyncio does not have: readiness, idle tasks, memory given back."""
