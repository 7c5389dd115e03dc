"""Measurements without pass or fail: `python -m bench`."""
