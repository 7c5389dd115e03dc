"""`leeway terminate`: drains nodes and ends their instances."""
