"""The Protocols of AWS, Kubernetes and the table that features call, and the values they return."""
