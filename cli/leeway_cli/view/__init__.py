"""`leeway view`: a page on 127.0.0.1 with the nodes, the price and what happens next."""
