"""`leeway acceptance`: proves on a cluster that Leeway launches, drains and ends nodes."""
