"""Ten tasks of a program that runs commands, written for shelld and for other libraries.

Each module has a function for each task that its library can do. A task's function has the same
name in all modules. A task needs only the commands in `commands.py` and its imports. The
benchmark counts the lines of each function. It does not count the commands and the imports.
"""
