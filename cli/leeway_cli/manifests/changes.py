"""Plans and makes changes of stored manifests, and prints them."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from leeway import __version__
from leeway.clock import SystemClock
from leeway.manifests import documents
from leeway.manifests.configuration import POOL, StoredManifest
from leeway.manifests.in_cluster import Home
from leeway.manifests.node_overlay import NodeOverlay
from leeway.manifests.node_pool import NodePool
from leeway.manifests.reading import Reading, Written, read_salvaged, read_stored
from leeway.table import RecordChanged, Table

from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors
from leeway_cli.output import Format, print_json, stdout_console, write_stderr, write_stdout
from leeway_cli.stack import Stack

if TYPE_CHECKING:
    from leeway.pool_pauses import PoolRecord

CLUSTER = "cluster.leeway.sh"
NODE_CLASS = "ec2nodeclass.karpenter.k8s.aws"


class Change(StrEnum):
    """The result for a manifest, as kubectl names it."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of a manifest from `before` to `after`. `conflict` is the reason why it must not be
    made."""

    change: Change
    title: str
    before: StoredManifest | None
    after: StoredManifest | None
    conflict: str = ""


def plan_change(written: Written, stored: Sequence[StoredManifest], now: datetime) -> PlannedChange:
    """Compare a manifest with the stored manifests of its cluster."""
    resource, namespace, name = written.kind.resource, written.namespace, written.name
    before = find(stored, resource, namespace, name)
    planned = plan_body(before, resource, name, written.body, now, namespace, written.original)
    modes = {_is_static(one) for one in (before.body if before else "", written.body)} - {None}
    if resource == POOL and len(modes) > 1:
        conflict = (
            "a pool keeps or launches nodes as it was created: spec.replicas is neither added nor "
            "removed. Delete the pool first, or apply one of another name"
        )
        return replace(planned, conflict=conflict)
    expected = written.manifest.metadata.resource_version
    if expected is None or planned.change is Change.UNCHANGED:
        return planned
    if before is None:
        return replace(planned, conflict=f"resourceVersion {expected} was deleted")
    if expected != str(before.version):
        changed = f"resourceVersion {expected} was replaced by {before.version}"
        return replace(planned, conflict=changed)
    return planned


def _is_static(body: str) -> bool | None:
    """Whether a body is that of a pool with a fixed number of nodes; None if it cannot be read."""
    try:
        return json.loads(body)["spec"].get("replicas") is not None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def plan_body(
    before: StoredManifest | None,
    resource: str,
    name: str,
    body: str,
    now: datetime,
    namespace: str = "",
    original: str = "",
) -> PlannedChange:
    """Compare the JSON of a manifest with the stored one. `original` is the JSON that `body` was
    converted from, empty if it was not."""
    if (
        before is not None
        and _same(before.body, body)
        and _same(before.as_written, original or body)
    ):
        return PlannedChange(Change.UNCHANGED, before.title, before, before)
    after = StoredManifest(
        resource=resource,
        namespace=namespace,
        name=name,
        body=body,
        # Not 1: a version that was read before a deletion must not match the new manifest.
        version=before.version + 1 if before else int(now.timestamp() * 1000),
        written_by=__version__,
        written_at=now,
        original=original,
    )
    change = Change.CONFIGURED if before else Change.CREATED
    return PlannedChange(change, after.title, before, after)


def _same(stored: str, body: str) -> bool:
    try:
        return bool(json.loads(stored) == json.loads(body))
    except ValueError:
        return False  # the stored manifest is damaged


def find(
    stored: Iterable[StoredManifest], resource: str, namespace: str, name: str
) -> StoredManifest | None:
    """Find a manifest among the stored ones."""
    wanted = (resource, namespace, name)
    return next((s for s in stored if (s.resource, s.namespace, s.name) == wanted), None)


def check_names(written: Iterable[Written], cluster: str) -> None:
    """Check that a manifest of the whole cluster has the cluster's name.

    Raises:
        BadInputError: a manifest has the name of another cluster.
    """
    for one in written:
        if one.kind.singleton and one.name != cluster:
            raise BadInputError(
                f"{one.source}:{one.line}: metadata.name: expected {cluster} (the option "
                f"--cluster), got {one.name}."
            )


_PLACEHOLDER = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def check_no_placeholders(written: Iterable[Written]) -> None:
    """Check that no value is a variable that a shell or envsubst was to replace, as in Karpenter's
    examples. User data and annotations may have such texts.

    Raises:
        BadInputError: a value has one.
    """
    for one in written:
        for path, text in _texts(json.loads(one.original or one.body)):
            if found := _PLACEHOLDER.search(text):
                raise BadInputError(
                    f"{one.source}:{one.line}: {one.title}: {path}: expected a value, got "
                    f"{found[0]}. Replace it first, for example with envsubst."
                )


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text of a document with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in {"annotations", "userData"}:
                yield from _texts(each, f"{path}.{key}" if path else key)
                yield path, key
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _texts(each, f"{path}[{number}]")


def pools_without_classes(
    stored: Iterable[StoredManifest], written: Sequence[Written]
) -> Iterator[tuple[str, str]]:
    """Yield the written pools that name a node class without a manifest, with its name."""
    classes = {one.name for one in stored if one.resource == NODE_CLASS}
    classes |= {one.name for one in written if one.kind.resource == NODE_CLASS}
    for one in written:
        if isinstance(one.manifest, NodePool):
            spec = one.manifest.spec.template.spec
            named = "node_class_ref" in spec.model_fields_set
            if named and spec.node_class_ref.name not in classes:
                yield one.name, spec.node_class_ref.name


def warn_of_overlays(
    stack: Stack, stored: Sequence[StoredManifest], written: Sequence[Written]
) -> None:
    """Warn of the NodeOverlays that will conflict when these manifests are written. Without a
    catalog in the table nothing is launched, and the run that gets one names them."""
    from leeway_cli.manifests.files import with_overlays

    changed = {one.title for one in written}
    kept = [reading_of(one) for one in stored if one.title not in changed]
    manifests = [
        one.manifest for one in (*written, *itertools.chain(*(read.written for read in kept)))
    ]
    overlays = sum(isinstance(one, NodeOverlay) for one in manifests)
    if overlays > 1 and any(isinstance(one.manifest, (NodeOverlay, NodePool)) for one in written):
        try:
            catalog = stack.catalog()
        except CannotBeDoneError as error:
            write_stderr(f"warning: conflicts of NodeOverlays are not known: {error}")
            return
        if catalog is not None:
            with_overlays(manifests, catalog)


def stored_manifests(stack: Stack, cluster: str) -> tuple[StoredManifest, ...]:
    """Read a cluster's manifests.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    with aws_errors(stack.where):
        return stack.manifests().of(cluster)


def plan_changes(
    stored: Sequence[StoredManifest], written: Iterable[Written]
) -> list[PlannedChange]:
    """Compare manifests with the stored ones."""
    now = datetime.now(UTC)
    return [plan_change(one, stored, now) for one in written]


def kept_apart(stack: Stack, cluster: str, planned: Sequence[PlannedChange]) -> list[PlannedChange]:
    """Mark the changes of manifests that users keep in the API server of the cluster. Copies that
    Leeway holds because their objects are gone may be deleted."""
    with aws_errors(stack.where):
        home = stack.home(cluster)
    if home.home is not Home.CLUSTER:
        return [*planned]

    def conflict(one: PlannedChange) -> str:
        is_copy = one.before is not None and one.before.in_cluster
        if one.change is Change.DELETED and (home.held is not None or not is_copy):
            return ""
        if one.title.startswith(f"{CLUSTER}/") and not is_copy:
            return ""
        return (
            f"the manifests of cluster {cluster} are in its API server: use kubectl there, or run "
            f"`leeway adopt {cluster} --manifests table` first"
        )

    return [replace(one, conflict=conflict(one) or one.conflict) for one in planned]


def apply_changes(
    stack: Stack, cluster: str, planned: Iterable[PlannedChange]
) -> list[PlannedChange]:
    """Make the changes that have no conflict. A change that another writer preceded becomes a
    conflict.

    Raises:
        CannotBeDoneError: a write failed; the changes before it are made.
    """
    done: list[PlannedChange] = []
    writing = stack.manifests()
    for one in planned:
        if one.conflict or one.change is Change.UNCHANGED:
            done.append(one)
            continue
        try:
            with aws_errors(stack.where):
                if one.after is not None:
                    writing.write(cluster, one.after, one.before.version if one.before else 0)
                elif one.before is not None:
                    writing.delete_manifest(cluster, one.before)
        except RecordChanged:
            done.append(replace(one, conflict="another writer changed it at the same time"))
        except CannotBeDoneError as error:
            lines = "\n".join(_line(before) for before in done if not before.conflict)
            raise CannotBeDoneError(f"{one.title}: {error}", lines) from error
        else:
            done.append(one)
    return done


def print_changes(
    made: Sequence[PlannedChange],
    cluster: str,
    dry_run: bool,
    output: Format,
    missing: Sequence[str] = (),
) -> None:
    """Print the results, as kubectl does. `missing` are manifests that the command did not find.

    Raises:
        CannotBeDoneError: there were conflicts or missing manifests; the other changes are made.
    """
    result = {"cluster": cluster, "dryRun": dry_run, "manifests": [_as_data(one) for one in made]}
    reasons = [f"{one.title}: conflict: {one.conflict}." for one in made if one.conflict]
    if missing:
        reasons.append(f"Cluster {cluster} has no manifest {', '.join(missing)}.")
    if output is Format.JSON:
        if not reasons:
            print_json(result)
    else:
        suffix = " (dry run)" if dry_run else ""
        for one in made:
            if not one.conflict:
                write_stdout(f"{_line(one)}{suffix}")
    if reasons:
        details = "\n".join(str(reason) for reason in reasons[1:])
        raise CannotBeDoneError(reasons[0], details, result)


def _line(one: PlannedChange) -> str:
    return f"{one.title} {one.change}"


def _as_data(one: PlannedChange) -> dict[str, str | None]:
    version = one.after.version if one.after else None
    return {
        "manifest": one.title,
        "result": "conflict" if one.conflict else one.change.value,
        "reason": one.conflict or None,
        "resourceVersion": None if version is None or one.conflict else str(version),
    }


def resume_pool(stack: Stack, cluster: str, pool: str, output: Format) -> None:
    """Clear the pause of a pool.

    Raises:
        CannotBeDoneError: the pool is not paused, or the table cannot be read or written.
    """
    from leeway.wiring.clients import table

    records = table(name=stack.table)
    with aws_errors(stack.where):
        before = _cleared(records, cluster, pool)
    if output is Format.JSON:
        reason = asdict(before.paused) if before.paused else None
        print_json({"cluster": cluster, "pool": pool, "paused": False, "pausedFor": reason})
    else:
        stdout_console().print(f"pool {pool} of cluster {cluster} resumed", markup=False)


def _cleared(records: Table, cluster: str, pool: str) -> "PoolRecord":
    """Clear the pause; return the record before."""
    from leeway.execution.retrying import Conflicts
    from leeway.pool_pauses import POOL as POOL_RECORD
    from leeway.pool_pauses import resumed

    conflicts = Conflicts(f"the record of pool {pool}")
    while True:
        with conflicts:
            stored = records.get(POOL_RECORD, cluster=cluster, pool=pool)
            if stored is None or stored.paused is None:
                pools = records.list(POOL_RECORD, cluster=cluster)
                paused = [one.pool for one in pools if one.paused is not None]
                known = ", ".join(paused) or "none"
                raise CannotBeDoneError(
                    f"Pool {pool} of cluster {cluster} is not paused by Leeway; "
                    f"paused pools: {known}."
                )
            records.put(POOL_RECORD, resumed(stored, SystemClock().now()))
            return stored


type Document = Mapping[str, Any]


def parsed(body: str) -> Document:
    """Parse a stored manifest. A body that is no JSON object becomes the field `unreadable`."""
    try:
        document = json.loads(body)
    except ValueError:
        return {"unreadable": body}
    return document if isinstance(document, dict) else {"unreadable": document}


def as_yaml(document: Document) -> str:
    """Render a document as YAML, fields in the order of the manifest."""
    return documents.as_yaml(dict(document))


def as_document(stored: StoredManifest) -> Document:
    """Render a stored manifest with its version, in the form that `leeway apply` accepts."""
    document = dict(parsed(stored.as_written))
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        document["metadata"] = {**metadata, "resourceVersion": str(stored.version)}
    written_at = stored.written_at.astimezone(UTC).isoformat(timespec="seconds")
    document["status"] = {
        "writtenBy": f"leeway {stored.written_by}",
        "writtenAt": written_at,
        "problems": [str(problem) for problem in reading_of(stored).problems],
    }
    return document


def as_list(stored: Sequence[StoredManifest]) -> Document:
    """Render several manifests as one document, as kubectl does."""
    items = [as_document(one) for one in stored]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def reading_of(stored: StoredManifest) -> Reading:
    """Read a stored manifest, as the functions do: of a Cluster manifest, whatever can be read."""
    read = read_salvaged if stored.resource == CLUSTER else read_stored
    return read(stored.body, stored.title)


def rows(stored: Sequence[StoredManifest], now: datetime) -> list[list[list[str]]]:
    """Render a table for each kind: a row of titles, then one for each manifest."""
    tables: list[list[list[str]]] = []
    for resource in sorted({one.resource for one in stored}):
        of_kind = [one for one in stored if one.resource == resource]
        readings = [reading_of(one) for one in of_kind]
        columns = next((r.written[0].manifest.summary_columns for r in readings if r.written), ())
        namespaced = any(one.namespace for one in of_kind)
        titles = [*(["NAMESPACE"] if namespaced else []), "NAME", *columns, "AGE", "PROBLEM"]
        table = [titles]
        for one, reading in zip(of_kind, readings, strict=True):
            summary = (
                reading.written[0].manifest.summary() if reading.written else ["?"] * len(columns)
            )
            problem = str(reading.problems[0]) if reading.problems else ""
            key = [one.namespace, one.title] if namespaced else [one.title]
            table.append([*key, *summary, age(now - one.written_at), problem])
        if all(not row[-1] for row in table[1:]):
            table = [row[:-1] for row in table]
        tables.append(table)
    return tables


def age(since: timedelta) -> str:
    """Render how long ago something was, as kubectl does: its largest unit."""
    seconds = max(0, int(since.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Render rows in columns with three spaces between, as kubectl does."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = (
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
    return "".join(f"{line}\n" for line in lines)
