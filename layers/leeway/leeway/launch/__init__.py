"""Launches nodes of Leeway's own: from a plan to instances of EC2 fleets."""
