"""Histories of durable executions, and the code that writes and replays them."""
