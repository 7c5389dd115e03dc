"""Durable executions: what they are started with, and their steps."""
