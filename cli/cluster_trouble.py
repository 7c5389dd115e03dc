"""What an API server's or a kubeconfig's troubles mean to somebody at a terminal: one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from cli.errors import BadInputError, CannotBeDoneError


@contextmanager
def cluster_trouble(*, by_labels: bool = False) -> Iterator[None]:
    """Tell what a cluster or a kubeconfig has against it; `by_labels` where labels, which only the
    API server reads, may be what is wrong.

    Raises:
        BadInputError: there is no such kubeconfig or context, or the labels are none.
        CannotBeDoneError: the API server does not answer, or refuses.
    """
    from leeway.kubernetes.kubeconfig import BadKubeconfig
    from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable

    try:
        yield
    except BadKubeconfig as error:
        raise BadInputError(str(error)) from error
    except ClusterRefused as error:
        if by_labels and str(error).startswith("400"):
            raise BadInputError(f"--selector, --pod-selector: {error}") from error
        raise CannotBeDoneError(str(error)) from error
    except ClusterUnavailable as error:
        raise CannotBeDoneError(_told(str(error))) from error


def _told(said: str) -> str:
    if said.startswith("401"):
        return f"the API server does not take the kubeconfig's credentials ({said}): sign in again"
    return said
