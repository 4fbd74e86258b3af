"""The bodies of the methods.

A body gets params, makes one call on the manager and returns a result.
"""
