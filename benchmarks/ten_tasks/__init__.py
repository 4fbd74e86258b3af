"""Ten tasks of a program that runs commands, written for shelld and for other libraries.

Each module has a function for each task that its library can do. A task's function has the same
name in all modules. A task needs only the commands below and its imports. The lines of commands and
imports do not count.
"""
