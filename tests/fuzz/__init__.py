"""Fuzz targets: functions of bytes that raise AssertionError on a broken promise.

The tests run each target on inputs that Hypothesis generates. ``make fuzz`` runs atheris for any
length of time. Atheris looks for inputs that reach new code, and keeps them.
"""
