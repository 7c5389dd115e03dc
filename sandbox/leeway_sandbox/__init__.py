"""An embedded AWS and an embedded Kubernetes, so that everything of Leeway runs on a laptop."""
