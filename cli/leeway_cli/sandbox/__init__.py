"""`leeway sandbox`: runs a sandbox and changes its state."""
