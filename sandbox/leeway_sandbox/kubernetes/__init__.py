"""An embedded Kubernetes API with controllers; clients use HTTPS only."""
