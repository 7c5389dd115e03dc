"""Which policy holds for a cluster: from files, from the table where there is one, or default."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import BadInputError, CannotBeDoneError
from cli.output import messages

if TYPE_CHECKING:
    from leeway.manifests.configuration import Configuration
    from leeway.policy.rules import ClusterPolicy

DEFAULT_SOURCE = "defaults"


@dataclass(frozen=True, slots=True)
class PolicySources:
    """The policies that are known. `written` are those of files, by the name of their cluster;
    `stored` reads a deployment's table, whose name is `table`; None where there is none."""

    written: "dict[str, tuple[ClusterPolicy, str]]"
    stored: "Configuration | None" = None
    table: str = ""

    def of(self, cluster: str) -> "tuple[ClusterPolicy, str]":
        """Return a cluster's policy and where it comes from; the name is empty where it is not
        known, and then the only policy of the files is meant."""
        from leeway.policy.rules import ClusterPolicy

        if cluster in self.written:
            return self.written[cluster]
        if not cluster and len(self.written) == 1:
            return next(iter(self.written.values()))
        if self.stored is not None and cluster:
            return self.stored.policy_of(cluster), f"table {self.table}"
        return ClusterPolicy(), DEFAULT_SOURCE


class _ToStderr:
    """Tells what in a stored manifest could not be read."""

    def misconfigured(self, cluster: str, manifest: str, problem: str) -> None:
        about = f"{cluster}: {manifest}" if manifest else cluster
        messages().print(f"warning: {about}: {problem}", soft_wrap=True, markup=False)


def find_policies(files: Sequence[Path], stack: str | None) -> PolicySources:
    """Read the policies of these files; with a stack, those of its table besides.

    Raises:
        BadInputError: a file cannot be read, or has no Cluster manifest.
    """
    written = _read(files)
    if stack is None:
        return PolicySources(written)
    from leeway.clock import SystemClock
    from leeway.manifests.configuration import Configuration

    from cli.stack import find_stack

    try:
        found = find_stack(stack)
    except CannotBeDoneError as error:
        messages().print(f"policies are the defaults: {error}", soft_wrap=True, markup=False)
        return PolicySources(written)
    stored = Configuration(found.manifests(), SystemClock(), _ToStderr())
    return PolicySources(written, stored, found.table)


def _read(files: Sequence[Path]) -> "dict[str, tuple[ClusterPolicy, str]]":
    if not files:
        return {}
    from leeway.manifests.cluster import Cluster
    from leeway.manifests.policy import cluster_policy

    from cli.manifest_files import read_files

    found = {}
    for path in files:
        for one in read_files([path]).written:
            if isinstance(one.meant, Cluster):
                found[one.meant.metadata.name] = (cluster_policy(one.meant), str(path))
    if not found:
        named = ", ".join(str(path) for path in files)
        raise BadInputError(f"{named}: expected a manifest of kind Cluster")
    return found
