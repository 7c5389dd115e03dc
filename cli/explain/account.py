"""Whether this command can ask AWS."""


def has_account() -> bool:
    """Return whether AWS credentials and a region are set."""
    from leeway.wiring.clients import session

    return session().region_name is not None and session().get_credentials() is not None
