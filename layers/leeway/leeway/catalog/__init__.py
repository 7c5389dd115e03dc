"""Refreshes the catalog of instance types, offerings and prices of a region."""
