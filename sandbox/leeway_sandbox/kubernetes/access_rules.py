"""Loads access rules from YAML: roles, bindings, admission policies and namespaces."""

from __future__ import annotations

from pathlib import Path

import yaml

from leeway_sandbox.errors import SandboxError
from leeway_sandbox.kubernetes import defaults, registry
from leeway_sandbox.kubernetes.store import Store

_KINDS = {
    kind.kind: kind for kind in (*registry.RBAC, *registry.ADMISSION_POLICIES, registry.NAMESPACE)
}


def load_rules(store: Store, path: Path) -> None:
    """Store the objects of a file, or of all YAML files of a folder.

    Raises:
        SandboxError: a file cannot be read, or an object is of another kind.
    """
    for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
        try:
            documents = list(yaml.safe_load_all(file.read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            problem = " ".join(str(error).split())
            raise SandboxError(f"The access rules in {file} cannot be read: {problem}") from error
        for document in documents:
            if document is not None:
                _load(store, file, document)


def _load(store: Store, file: Path, document: dict[str, object]) -> None:
    kind = _KINDS.get(str(document.get("kind")))
    if kind is None or kind not in registry.KINDS.values():
        raise SandboxError(
            f"{file}: the kind {document.get('kind')!r} is not a role, a binding, an "
            "admission policy or a namespace."
        )
    stored = {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
    defaults.fill(kind, stored)
    defaults.admit(kind, stored, store)
    store.create(kind, stored)
