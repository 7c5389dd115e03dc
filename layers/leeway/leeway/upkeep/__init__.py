"""The headroom of every cluster is kept what it should be."""
