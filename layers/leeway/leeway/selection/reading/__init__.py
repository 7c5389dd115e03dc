"""Converts Kubernetes objects to the pods and nodes of packing."""
