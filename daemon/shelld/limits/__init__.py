"""Limits the resources that the commands of a session use."""
