"""Loads ClusterRoles, Roles and bindings from a file of YAML documents."""

from __future__ import annotations

from pathlib import Path

import yaml

from sandbox.kubernetes import registry
from sandbox.kubernetes.store import Store

_KINDS = {kind.kind: kind for kind in registry.RBAC}


def load_rules(store: Store, path: Path) -> None:
    """Store the RBAC objects of a file; ValueError where it holds something else."""
    for document in yaml.safe_load_all(path.read_text()):
        if document is None:
            continue
        kind = _KINDS.get(document.get("kind"))
        if kind is None:
            raise ValueError(f"{path}: not an RBAC object: kind {document.get('kind')!r}")
        stored = {
            name: value for name, value in document.items() if name not in ("apiVersion", "kind")
        }
        store.create(kind, stored)
