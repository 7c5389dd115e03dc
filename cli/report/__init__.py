"""What happened in a storm of notices, as an outside observer saw it, and how it is shown."""
