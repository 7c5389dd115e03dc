"""Replaces a retiring instance: decides, requests the successor, waits until it is Ready."""
