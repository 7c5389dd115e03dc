"""Admission of a new node: it joins, becomes Ready, and its launch hook is answered."""
