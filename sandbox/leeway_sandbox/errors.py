"""The errors that the sandbox reports to a person: the text is a sentence, and what to do.

Errors of the Kubernetes API and of AWS services are not here: they have the format of the real
ones.
"""


class SandboxError(Exception):
    """The sandbox cannot do what was asked."""


class RefusedError(SandboxError):
    """The sandbox refuses a request; the message says why."""


class NotFoundError(RefusedError):
    """A request names an object that does not exist."""


class NotInstalledError(ModuleNotFoundError):
    """A package of the extra `sandbox` is not installed."""
