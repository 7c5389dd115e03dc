"""An embedded Kubernetes API with living inhabitants, spoken to over HTTPS only."""
