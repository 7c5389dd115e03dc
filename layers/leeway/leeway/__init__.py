"""Leeway: an event-driven, serverless node control plane for Kubernetes on EC2."""

__version__ = "0.1.0"
