"""The rules for each kind of notice: what users configure, and the defaults."""
