"""Adapters of the ports for AWS, on boto3."""
