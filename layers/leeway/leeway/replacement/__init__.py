"""Replaces a retiring instance: decision, request, launch and tracking of the successor."""
