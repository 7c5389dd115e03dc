"""AWS as Leeway sees it: the Protocols of `ports`, and their boto3 adapters."""
