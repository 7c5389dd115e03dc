"""Handles get and list: selectors, pages, and the tables of kubectl."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Iterator

import msgspec

from leeway_sandbox.kubernetes import errors, registry, tables
from leeway_sandbox.kubernetes.calls import Call
from leeway_sandbox.kubernetes.objects import (
    Object,
    decode,
    encode,
    key_of,
    labels_of,
    name_of,
    namespace_of,
)
from leeway_sandbox.kubernetes.selectors import ObjectTest, parse_fields, parse_labels
from leeway_sandbox.kubernetes.store import Key, Store


def selection(call: Call) -> tuple[dict[str, str], ObjectTest | None]:
    """Return the selection of a call: the fields of equalities, for indexes, and the predicate."""
    terms, by_fields = parse_fields(call.kind.plural, call.query.get("fieldSelector", ""))
    if call.target.name:
        name = call.target.name
        return {"metadata.name": name}, lambda obj: name_of(obj) == name
    by_labels = parse_labels(call.query.get("labelSelector", ""))
    equal = {path: value for path, value, wanted in terms if wanted}
    if by_labels is None:
        return equal, by_fields
    return equal, lambda obj: by_labels(labels_of(obj)) and (by_fields is None or by_fields(obj))


def candidates(store: Store, call: Call, equal: dict[str, str]) -> Iterable[Object]:
    """Return the objects that a selection can match, by the best index, in list order."""
    kind, namespace = call.kind, call.target.namespace
    name, node = equal.get("metadata.name"), equal.get("spec.nodeName")
    if name and (namespace or not kind.namespaced):
        found = store.get(kind, namespace, name)
        return [found] if found else []
    if kind is registry.POD and node:
        return (pod for pod in store.on_node(node) if namespace in ("", namespace_of(pod)))
    return store.every(kind, namespace)


def get(store: Store, call: Call) -> Object:
    """Return the object of a get, or its table or metadata."""
    target = call.target
    obj = store.read(call.kind, target.namespace, target.name)
    return shown(call, obj, {"resourceVersion": str(store.revision)})


def shown(call: Call, obj: Object, version: Object) -> Object:
    """Return one object in the form that a call asks for."""
    match tables.form_of(call.accept, of_list=False):
        case "Table":
            return table_of(call, [obj], version)
        case tables.METADATA:
            return tables.metadata_of(obj)
    return call.kind.typed(obj)


def table_of(call: Call, objects: list[Object], metadata: Object) -> Object:
    """Return objects as the table that a call asks for."""
    included = call.query.get("includeObject", "Metadata")
    return tables.table(call.kind, objects, metadata, included)


def listing(store: Store, call: Call) -> Object:
    """Return a list, or a page of a list.

    All pages show the state at the version of the first page and have that version, so that a watch
    from there misses no change.
    """
    form = tables.form_of(call.accept, of_list=True)
    equal, test = selection(call)
    limit = max(0, call.number("limit"))
    asked = version_of(call)
    if asked == 0:
        limit = 0  # A server that answers from its cache ignores the limit.
    elif asked is not None and asked > store.revision:
        raise errors.too_large(asked, store.revision)
    revision = store.revision
    found = iter(candidates(store, call, equal))
    _check_version_match(call)
    if call.query.get("continue"):
        revision, after = _continue(call.query["continue"])
        if revision < store.oldest:
            raise _outdated(store, after)
        found = _as_of(store, call, revision, after)
    if test is not None:
        found = filter(test, found)
    metadata: Object = {"resourceVersion": str(revision)}
    items = list(itertools.islice(found, limit) if limit else found)
    if limit and len(items) == limit:
        left = sum(1 for _ in found)
        if left:
            last = items[-1]
            metadata["continue"] = _token(revision, key_of(last))
            if test is None:
                metadata["remainingItemCount"] = left
    if form == "Table":
        return table_of(call, items, metadata)
    if form == tables.METADATA_LIST:
        return tables.metadata_list(items, metadata)
    return {
        "kind": f"{call.kind.kind}List",
        "apiVersion": call.kind.api_version,
        "metadata": metadata,
        "items": items,
    }


def _check_version_match(call: Call) -> None:
    """Refuse a list of exactly one past version with 422: the sandbox does not support it."""
    match = call.query.get("resourceVersionMatch", "")
    if match not in ("", "NotOlderThan"):
        cause = errors.value_unsupported("resourceVersionMatch", match, ("NotOlderThan", ""))
        raise errors.invalid_options("ListOptions", cause)


def _as_of(store: Store, call: Call, revision: int, after: Key) -> Iterator[Object]:
    """Yield the objects after a key at a version: the present ones, with later changes undone."""
    kind, namespace = call.kind, call.target.namespace
    found = {key_of(obj): obj for obj in store.every(kind, namespace, after)}
    for change in store.undoing(kind, revision):
        key = key_of(change.object)
        if change.previous is None:
            found.pop(key, None)
        elif key > after and namespace in ("", key[0]):
            found[key] = change.previous
    return (found[key] for key in sorted(found))


def version_of(call: Call) -> int | None:
    """Return the version of a list or watch request; 400 if it is invalid."""
    text = call.query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isdigit():
        cause = errors.value_invalid("resourceVersion", f'"{text}"', "invalid resource version")
        raise errors.invalid_options("ListOptions", cause)
    return int(text)


def _outdated(store: Store, after: Key) -> errors.ApiError:
    """410 for a token older than the history, with a token that continues inconsistently."""
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results. Continuing with the provided token "
        "results in an inconsistent list - objects that were created, modified, or deleted "
        "between the time the first chunk was returned and now may show up in the list."
    )
    error = errors.ApiError(410, "Expired", message)
    error.status["metadata"] = {"continue": _token(store.revision, after)}
    return error


def _token(revision: int, last: Key) -> str:
    start = "/".join(filter(None, last)) + "\0"
    token = encode({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _continue(token: str) -> tuple[int, Key]:
    try:
        content = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = content["start"].rstrip("\0").rpartition("/")
        return int(content["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError, AttributeError, msgspec.DecodeError) as error:
        message = f"invalid continue token: continue key is not valid: {error}"
        raise errors.bad_request(message) from error
