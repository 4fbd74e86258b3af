"""Fuzz targets: functions that take bytes, and raise AssertionError if shelld's code breaks a
promise.

The tests run each target on inputs that Hypothesis generates. ``make fuzz`` runs atheris for any
length of time. Atheris looks for inputs that reach new code, and keeps them.
"""
