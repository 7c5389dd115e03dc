"""Leeway: an event-driven, serverless node control plane for Kubernetes on EC2."""

import gc
import os

from leeway import precompiled

if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    gc.disable()  # until `wiring.clients.prepare`: what an import creates stays

# numpy starts a thread of OpenBLAS for each processor when it is imported. No product of matrices
# here is large enough for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

precompiled.use()

__version__ = "0.1.0"
