"""`leeway drain`: drains nodes from a terminal."""
