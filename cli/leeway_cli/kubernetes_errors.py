"""Turns errors of an API server or a kubeconfig into errors of a command."""

from collections.abc import Iterator
from contextlib import contextmanager

from leeway_cli.errors import BadInputError, CannotBeDoneError, as_clause
from leeway_cli.reasons import (
    API_SERVER_REFUSED,
    API_SERVER_UNAVAILABLE,
    INVALID_KUBECONFIG,
    INVALID_OPTION,
    KUBECONFIG_CREDENTIALS_REJECTED,
)


@contextmanager
def kubernetes_errors(*, with_selector: bool = False) -> Iterator[None]:
    """Turn errors of a cluster or a kubeconfig into errors of the command. `with_selector`: the
    command has label selectors, which only the API server checks.

    Raises:
        BadInputError: the kubeconfig, its context or a label selector is invalid.
        CannotBeDoneError: the API server refused a request or did not answer.
    """
    from leeway.kubernetes.kubeconfig import BadKubeconfig
    from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable

    try:
        yield
    except BadKubeconfig as error:
        raise BadInputError(INVALID_KUBECONFIG(error=as_clause(error))) from error
    except ClusterRefused as error:
        problem = as_clause(error)
        if with_selector and problem.startswith("400"):
            reason = INVALID_OPTION(
                option="--selector, --pod-selector",
                expected=f"labels that the API server accepts, got {problem}",
            )
            raise BadInputError(reason) from error
        raise CannotBeDoneError(API_SERVER_REFUSED(error=problem)) from error
    except ClusterUnavailable as error:
        problem = as_clause(error)
        if problem.startswith("401"):
            raise CannotBeDoneError(KUBECONFIG_CREDENTIALS_REJECTED(error=problem)) from error
        raise CannotBeDoneError(API_SERVER_UNAVAILABLE(error=problem)) from error
