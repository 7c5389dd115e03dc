"""Receives notices, records them, and starts the functions that act on them."""
