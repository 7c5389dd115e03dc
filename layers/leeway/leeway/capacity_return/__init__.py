"""Giving capacity back: which nodes of Leeway's own are no longer needed, or not as they are."""
