"""What events did not tell is found once a minute, and made good."""
