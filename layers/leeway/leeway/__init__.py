"""Leeway: an event-driven, serverless node control plane for Kubernetes on EC2."""

import gc
import os

from leeway import precompiled

if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    gc.disable()  # until `wiring.clients.prepare`: what an import creates stays

precompiled.use()

__version__ = "0.1.0"
