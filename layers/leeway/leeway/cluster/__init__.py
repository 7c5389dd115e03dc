"""Kubernetes as Leeway sees it: the Protocol of `ports`, and its lightkube adapter."""
