"""`leeway rehearse`: shows what an interruption of nodes would do to a cluster."""
