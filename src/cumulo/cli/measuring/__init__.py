"""Measures a person's own training step on this machine, in a process and a Python of its own."""
