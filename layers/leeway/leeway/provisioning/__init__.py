"""The one buyer of a cluster: launches nodes for pods that have no place."""
