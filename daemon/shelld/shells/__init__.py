"""The shells: commands that run or have run, and the spare shells."""
