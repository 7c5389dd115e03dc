"""The composition root: reads the environment and builds clients, in one module per function."""
