"""Durable executions: their input, steps, retries and shared cache."""
