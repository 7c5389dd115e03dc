"""Measurements, never pass or fail: `python -m bench`."""
