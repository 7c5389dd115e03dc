"""Decides by the facts what is wrong. Each check is a pure function: facts in, findings out."""
