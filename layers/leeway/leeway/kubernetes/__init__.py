"""Adapters of the ports for the Kubernetes API, over HTTP."""
