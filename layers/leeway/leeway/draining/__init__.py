"""Draining a node: what `leeway.drain` decides is carried out."""
