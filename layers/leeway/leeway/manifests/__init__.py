"""The manifests that users write: their kinds, their validation and their errors."""
