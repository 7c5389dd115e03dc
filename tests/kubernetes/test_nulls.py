"""Fields of Kubernetes objects that are null, missing or empty: every reader takes them for the
same, in whatever form an API server writes them."""

import copy
import importlib
import pkgutil
import typing
from collections.abc import Iterator
from typing import Any

import leeway.kubernetes
import leeway_cli.doctor.read
import leeway_cli.rehearse
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.clock import SystemClock
from leeway.kubernetes.cluster_states import PATHS, KeptKind
from leeway.kubernetes.http_cluster import selects
from leeway.kubernetes.list_watch import ObjectList, WatchEvent, read_json
from leeway.kubernetes.objects import NODES, Budget, Node, Pod
from leeway.kubernetes.translate import cordoned, released, to_node, to_pod
from leeway.kubernetes.watches import change_of
from leeway.provisioning.kept_objects import KeptObjects
from leeway.selection.reading.schemas import SCHEMAS
from leeway_cli.rehearse.cluster import Pace
from leeway_cli.rehearse.read import read_objects
from leeway_sandbox.kubernetes import schema
from leeway_sandbox.kubernetes.registry import KINDS

from tests.provisioning import cluster_documents as documents
from tests.wrong_shapes import Path, replaced

MODELS = {kind.kind: kind.model for kind in KINDS.values()}
NOW = SystemClock().now()
BUDGET = {
    "metadata": documents.metadata("web", "shop"),
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
    "status": {
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "disruptionsAllowed": 1,
        "expectedPods": 2,
    },
}
CLUSTER: list[tuple[str, dict[str, Any]]] = [
    ("Node", documents.node("n-1", taints=[{"key": "only", "effect": "NoSchedule"}])),
    ("Pod", documents.pod("runs", "n-1")),
    ("Pod", documents.pod("waits", volumes=[{"name": "v", "emptyDir": {}}])),
    ("Pod", documents.pod("picky", affinity={"nodeAffinity": {}}, tolerations=[{"key": "a"}])),
    ("NodeClaim", documents.node_claim("claim", 3)),
    ("PersistentVolumeClaim", documents.claim("data-0", "pv-0")),
    ("PersistentVolume", documents.volume("pv-0", "us-east-1a")),
    ("StorageClass", documents.storage_class("us-east-1a")),
    ("CSINode", documents.csi_node("n-1", 3)),
    ("LimitRange", documents.limit_range("50m")),
    ("DaemonSet", documents.daemon_set("agent", "50m")),
    ("PodDisruptionBudget", BUDGET),
    ("PriorityClass", {"metadata": documents.metadata("low"), "value": -1}),
    ("RuntimeClass", {"metadata": documents.metadata("gvisor"), "handler": "runsc"}),
]
for _, _document in CLUSTER:
    for _owner in _document["metadata"].get("ownerReferences", ()):
        _owner["uid"] = "uid-owner"
# Karpenter's kind has no model. Its spec and status have these fields, among others.
OF_NODE_CLAIM: list[tuple[Path, Any]] = [
    (("spec", "taints"), []),
    (("status", "conditions"), []),
    (("metadata", "annotations"), {}),
    (("metadata", "ownerReferences"), []),
]


def gaps(kind: str, document: dict[str, Any]) -> list[tuple[Path, Any]]:
    """Return the optional fields that an object does not have, with their empty values: None for a
    value that is no list and no map, since an empty object or text may have a meaning."""
    if kind == "NodeClaim":
        return OF_NODE_CLAIM
    return list(_gaps(MODELS[kind], document, ()))


def _gaps(model: type[Any], value: dict[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for name, field in schema.fields(model).items():
        here: Path = (*path, name)
        inside = value.get(name)
        if inside and field.model is not None:
            members = enumerate(inside) if field.is_list else [(None, inside)]
            for index, one in members:
                yield from _gaps(field.model, one, here if index is None else (*here, index))
        elif name not in value and not field.required:
            is_map = field.model is None and dict in field.types
            yield here, [] if field.is_list else {} if is_map else None


@st.composite
def written(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    """The objects of CLUSTER as some API server may write them."""
    chance = draw(st.randoms(use_true_random=False))
    forms = draw(st.sampled_from(["null", "empty", "mixed"]))
    found = []
    for kind, document in CLUSTER:
        changed = copy.deepcopy(document)
        for path, empty in gaps(kind, document):
            form = chance.choice(["null", "empty", "absent"]) if forms == "mixed" else forms
            if form != "absent":
                changed = _with(changed, path, copy.deepcopy(empty) if form == "empty" else None)
        found.append((kind, changed))
    return found


def _with(document: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    inside: Any = document
    for part in path[:-1]:
        if isinstance(inside, dict) and part not in inside:
            return document
        inside = inside[part]
    changed: dict[str, Any] = replaced(document, path, value)
    return changed


def readings(cluster: list[tuple[str, dict[str, Any]]]) -> dict[str, object]:
    """Return what each reader says about the same objects."""
    kept = KeptObjects()
    kinds = {kind: KeptKind(kind, kept) for kind in PATHS}
    found: dict[str, object] = {}
    for number, (kind, document) in enumerate(cluster, 1):
        metadata = {**document["metadata"], "resourceVersion": str(number)}
        stored = {"apiVersion": "v1", "kind": kind, **document, "metadata": metadata}
        content = msgspec.json.encode(stored)
        kinds[kind].version = 0
        kinds[kind].apply([msgspec.json.encode({"type": "ADDED", "object": stored})])
        name = f"{kind} {metadata['name']}"
        if kind == "Pod":
            pod = msgspec.json.decode(content, type=Pod)
            event = WatchEvent(type="ADDED", object=msgspec.Raw(content))
            found[name] = to_pod(pod), change_of(event)
        elif kind == "Node":
            node = msgspec.json.decode(content, type=Node)
            found[name] = to_node(node), cordoned(node, None), released(node, None)
        elif kind == "PodDisruptionBudget":
            budget = msgspec.json.decode(content, type=Budget)
            assert budget.spec is not None
            found[name] = selects(budget.spec.selector, {"app": "web"})
    state = kept.state(NOW)
    given_documents = [{**document, "kind": kind} for kind, document in cluster]
    rehearsed = read_objects(given_documents, Pace(), NOW, frozenset())
    found["rehearsal"] = rehearsed.pods, rehearsed.nodes, rehearsed.budgets, rehearsed.unread
    return {**found, **documents.comparable(state)}


EXPECTED = readings(CLUSTER)


def test_the_objects_are_readable() -> None:
    assert EXPECTED["unreadable"] == []
    assert len(typing.cast("list[object]", EXPECTED["waiting"])) == 2


@settings(max_examples=40)
@given(cluster=written())
def test_null_missing_and_empty_fields_are_the_same_for_every_reader(
    cluster: list[tuple[str, dict[str, Any]]],
) -> None:
    found = readings(cluster)
    assert {name: one for name, one in found.items() if one != EXPECTED[name]} == {}


@pytest.mark.parametrize("items", [b',"items":null', b',"items":[]', b""])
def test_a_list_without_items_is_empty(items: bytes) -> None:
    metadata = b'{"resourceVersion":"7","continue":null}'
    found = read_json(b'{"kind":"NodeList","metadata":' + metadata + items + b"}", NODES)
    assert (found.items, found.metadata.next_page) == ([], "")


@pytest.mark.parametrize("content", [b'{"items":null}', b'{"kind":"NodeList"}', b"null", b"[]"])
def test_an_answer_without_kind_or_metadata_is_no_empty_list(content: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_json(content, NODES)


def structs() -> list[type[msgspec.Struct]]:
    """Return the structs that answers of an API server are decoded into."""
    found: set[type[msgspec.Struct]] = set()
    for package in (leeway.kubernetes, leeway_cli.doctor.read, leeway_cli.rehearse):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, msgspec.Struct):
                    found |= {value} if value.__module__.startswith(package.__name__) else set()
    return sorted(found, key=lambda one: (one.__module__, one.__qualname__))


def test_each_list_and_map_of_a_struct_may_be_missing() -> None:
    """A field that is null is decoded as a missing one: so it needs a default."""
    assert ObjectList in structs()
    for struct in structs():
        for field in msgspec.structs.fields(struct):
            origin = typing.get_origin(field.type)
            assert not (field.required and origin in {list, dict}), (struct, field.name)


def test_each_optional_list_and_map_of_a_schema_may_be_null() -> None:
    checked = {"items": 0}

    def check(hint: Any, path: str) -> None:
        args = typing.get_args(hint)
        if typing.is_typeddict(hint):
            for name, inner in typing.get_type_hints(hint, include_extras=True).items():
                if name in hint.__optional_keys__:
                    plain = typing.get_args(inner) if typing.get_origin(inner) else ()
                    is_many = typing.get_origin(inner) in {list, dict} or typing.is_typeddict(inner)
                    assert not is_many or type(None) in plain, f"{path}.{name}: {inner}"
                    checked["items"] += 1
                check(inner, f"{path}.{name}")
        for one in args:
            check(one, path)

    for kind, found in SCHEMAS.items():
        check(found, kind)
    assert checked["items"] > 100
