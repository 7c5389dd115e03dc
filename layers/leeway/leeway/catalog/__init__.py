"""Refreshes the catalog of instance types, offerings and prices."""
