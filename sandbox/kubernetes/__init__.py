"""An embedded Kubernetes API with living controllers, spoken to over HTTPS only."""
