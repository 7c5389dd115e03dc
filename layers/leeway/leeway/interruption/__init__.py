"""Receives notices, writes the records of their instances, and starts the functions that act."""
