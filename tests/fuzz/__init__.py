"""Fuzz targets: functions of bytes that raise AssertionError for what must not be.

The tests run each on what Hypothesis makes up; ``make fuzz`` lets atheris look, for as long as one
likes, for inputs that reach new code, and keeps them.
"""
