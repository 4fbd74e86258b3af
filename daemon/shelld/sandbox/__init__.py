"""Limits what the commands of a session may reach, by policies and by sandboxes."""
