"""Drains nodes: decisions about pods, the executor, and the durable step."""
