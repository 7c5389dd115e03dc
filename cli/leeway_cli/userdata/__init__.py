"""`leeway userdata`: prints the user data of a node."""
