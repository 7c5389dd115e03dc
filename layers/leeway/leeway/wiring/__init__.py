"""The one place that reads the environment and builds clients, a module for each function."""
