"""Histories of durable executions, as versions of Leeway wrote them, and how to write one."""
