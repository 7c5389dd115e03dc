"""Pods → a place each, on nodes that are there and on new ones, by every rule that pods have."""
