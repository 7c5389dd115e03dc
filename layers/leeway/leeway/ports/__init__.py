"""The Protocols that the features call, and the values that AWS and Kubernetes return."""
