"""Facts about EC2 instances: their owners, their Auto Scaling groups, their observed state."""
