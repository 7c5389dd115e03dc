"""Reads the facts from AWS and API servers. A reader that fails does not stop the others."""
