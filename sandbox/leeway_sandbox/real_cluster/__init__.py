"""Somebody's test cluster (kind, k3d …) as the Kubernetes of a sandbox."""
