"""What the table knows of each instance, group and cluster, and how notices change it."""
