"""Choosing offerings for pods: requirements → catalog → packing → ranked offerings. Pure."""
