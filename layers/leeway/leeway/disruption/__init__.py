"""Which nodes of Leeway's own go, and why: empty, expired, drifted and under-used ones."""
