"""Adapters of the ports for the Kubernetes API, on lightkube."""
