"""Passes requests on to other daemons, which are called targets."""
