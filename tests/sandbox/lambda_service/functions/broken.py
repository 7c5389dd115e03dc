"""A module that fails on import."""

import a_module_that_is_not_there  # type: ignore[import-not-found]  # noqa: F401


def handler(event: object, context: object) -> None:
    return None
