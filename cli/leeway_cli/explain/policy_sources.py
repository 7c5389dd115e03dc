"""Finds the policy of a cluster: from files, from the table, or the default."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.output import stderr_console

if TYPE_CHECKING:
    from leeway.manifests.configuration import Configuration
    from leeway.policy.rules import ClusterPolicy
    from leeway.reasons import Reason

DEFAULT_SOURCE = "defaults"


@dataclass(frozen=True, slots=True)
class PolicySources:
    """The sources of policies. `written` are those of files, by the name of the cluster. `stored`
    reads the table `table` of a deployment; it is None without a deployment."""

    written: "dict[str, tuple[ClusterPolicy, str]]"
    stored: "Configuration | None" = None
    table: str = ""

    def of(self, cluster: str) -> "tuple[ClusterPolicy, str]":
        """Return the policy of a cluster and its source. An empty name stands for an unknown
        cluster, for which the only policy of the files is used."""
        from leeway.policy.rules import ClusterPolicy

        if cluster in self.written:
            return self.written[cluster]
        if not cluster and len(self.written) == 1:
            return next(iter(self.written.values()))
        if self.stored is not None and cluster:
            return self.stored.policy_of(cluster), f"table {self.table}"
        return ClusterPolicy(), DEFAULT_SOURCE


class _StderrWarnings:
    """Prints warnings about stored manifests that cannot be read."""

    def manifest_problem(self, cluster: str, manifest: str, reason: "Reason") -> None:
        about = f"{cluster}: {manifest}" if manifest else cluster
        stderr_console().print(f"warning: {about}: {reason}", soft_wrap=True, markup=False)


def find_policies(files: Sequence[Path], stack: str | None) -> PolicySources:
    """Read the policies of these files and, with a stack, of its table.

    Raises:
        BadInputError: a file cannot be read, or has no Cluster manifest.
    """
    written = _read(files)
    if stack is None:
        return PolicySources(written)
    from leeway.clock import SystemClock
    from leeway.manifests.configuration import Configuration

    from leeway_cli.stack import find_stack

    try:
        found = find_stack(stack)
    except CannotBeDoneError as error:
        stderr_console().print(
            f"warning: the default policies are used: {error}", soft_wrap=True, markup=False
        )
        return PolicySources(written)
    stored = Configuration(found.manifests(), SystemClock(), _StderrWarnings())
    return PolicySources(written, stored, found.table)


def _read(files: Sequence[Path]) -> "dict[str, tuple[ClusterPolicy, str]]":
    if not files:
        return {}
    from leeway.manifests.cluster import Cluster, cluster_policy

    from leeway_cli.manifests.files import read_files

    found = {}
    for path in files:
        for one in read_files([path]).written:
            if isinstance(one.manifest, Cluster):
                found[one.manifest.metadata.name] = (cluster_policy(one.manifest), str(path))
    if not found:
        paths = ", ".join(str(path) for path in files)
        raise BadInputError(f"{paths}: expected a manifest of kind Cluster.")
    return found
