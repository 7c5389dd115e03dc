"""`leeway explain`: shows what Leeway would do, and why."""
