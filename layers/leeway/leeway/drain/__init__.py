"""Which pods go, in what order, by when: pure decisions, each with its reason."""
