"""`leeway demo`: runs scenarios in a sandbox and reports the result."""
