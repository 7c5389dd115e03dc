"""The command line: `leeway …`."""
