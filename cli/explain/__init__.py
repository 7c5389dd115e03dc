"""`leeway explain`: shows what Leeway would do about a notice."""
