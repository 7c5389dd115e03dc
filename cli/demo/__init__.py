"""`leeway demo`: sends Spot interruption warnings to a sandbox and reports the result."""
