"""Test doubles of ports, one module per port; contract tests compare them with the adapters."""
