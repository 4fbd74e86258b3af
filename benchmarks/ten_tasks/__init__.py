"""Ten tasks of a program that runs commands, written for shelld and for other libraries.

Each module has the tasks that its library can do, as functions of one name. A task is whole: it
needs nothing but the commands below and its imports, whose lines are not counted.
"""
