"""User data: the text that a node reads when it boots, for each AMI family."""
