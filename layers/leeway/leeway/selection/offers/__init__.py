"""The offers of EC2: instance types, their allocatable resources, offerings and prices."""
