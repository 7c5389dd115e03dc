"""Kubernetes objects → the pods, nodes and daemons that packing knows."""
