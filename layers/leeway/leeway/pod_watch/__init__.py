"""Watches pods that no node has room for, and wakes the buyer of their cluster."""
