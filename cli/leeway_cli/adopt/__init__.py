"""`leeway adopt` and `leeway release`: bring a cluster under Leeway's care, and undo it."""
