"""A simulated day of a cluster: the pure decisions of Leeway, minute by minute."""
