"""EC2 instances, their owners and their Auto Scaling groups, as values."""
