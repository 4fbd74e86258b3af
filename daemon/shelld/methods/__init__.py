"""The functions that carry out the methods of the protocol.

Each function is the body of a method. It gets params, makes one call on the manager, and returns a
result.
"""
