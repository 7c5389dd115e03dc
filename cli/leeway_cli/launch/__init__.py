"""`leeway launch`: launches nodes for pods by hand."""
