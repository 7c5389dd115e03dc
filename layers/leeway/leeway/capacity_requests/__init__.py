"""Requests of retirements for nodes that their pods can run on."""
