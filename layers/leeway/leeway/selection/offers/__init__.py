"""What EC2 offers: instance types, what each leaves to pods, where they are had, for how much."""
