"""Leeway: an event-driven, serverless node control plane for Kubernetes on EC2."""

from leeway import precompiled

precompiled.use()

__version__ = "0.1.0"
