"""What users write: the kinds of manifests, how they are read, and what is wrong with them."""
