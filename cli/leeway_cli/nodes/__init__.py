"""`leeway nodes`: what each node is, how full it is, what it costs, and what happens to it next."""
