"""User data: what a node boots with, for each AMI family."""
