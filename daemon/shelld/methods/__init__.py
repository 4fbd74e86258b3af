"""The functions that carry out the methods of the protocol.

Such a function, the body of a method, gets params, makes one call on the manager and returns a
result.
"""
