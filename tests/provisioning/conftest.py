"""The sandbox's catalog, read once."""

from tests.launch.conftest import catalog

__all__ = ["catalog"]
