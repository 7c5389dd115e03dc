"""Impersonation, and reviews of other users' permissions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live, running_cluster
from tests.sandbox.kubernetes.test_access import eks_token, grant

_ROLES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
- {nonResourceURLs: ["/metrics/*"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:jobs"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: stands-in}
rules:
- {apiGroups: [""], resources: [users], resourceNames: [reader], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: stands-in}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: stands-in}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: stand-in}
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Return a cluster with a reader, and a user who may impersonate only that reader."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "roles.yaml").write_text(_ROLES)
    with running_cluster(folder, "--rbac", str(folder / "roles.yaml")) as live:
        grant(live, **{"stand-in": [], "powerless": []})
        yield live


def status_as(live: Live, path: str = PODS, token: str = "", **headers: str | list[str]) -> Any:
    """Return status and message of a GET with impersonation headers."""
    names = {"user": "Impersonate-User", "group": "Impersonate-Group", "uid": "Impersonate-Uid"}
    sent = [
        (names[key], one)
        for key, value in headers.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    with live.client(token or live.token) as client:
        answer = client.get(path, headers=[*client.headers.multi_items(), *sent])
    return answer.status_code, answer.json().get("message", "")


def test_an_impersonated_user_determines_the_permissions(guarded: Live) -> None:
    assert status_as(guarded, user="reader")[0] == 200
    code, reasons = status_as(guarded, "/api/v1/nodes", user="reader")
    assert code == 403
    assert 'User "reader" cannot list resource "nodes"' in reasons
    assert status_as(guarded, user="nobody")[0] == 403
    assert status_as(guarded, user="nobody", group=["others", "readers"])[0] == 200


def test_a_service_account_has_the_groups_of_its_namespace(guarded: Live) -> None:
    assert status_as(guarded, user="system:serviceaccount:jobs:runner")[0] == 200
    assert status_as(guarded, user="system:serviceaccount:other:runner")[0] == 403


def test_each_impersonated_name_needs_the_permission(guarded: Live) -> None:
    token = eks_token("stand-in")

    assert status_as(guarded, token=token)[0] == 403
    assert status_as(guarded, token=token, user="reader")[0] == 200
    code, reasons = status_as(guarded, token=token, user="admin")
    assert code == 403
    assert reasons == (
        'users "admin" is forbidden: User "stand-in" cannot impersonate resource "users" in API '
        'group "" at the cluster scope'
    )
    for more in ({"group": "system:masters"}, {"uid": "7"}):
        assert status_as(guarded, token=token, user="reader", **more)[0] == 403
    account = "system:serviceaccount:jobs:runner"
    reasons = status_as(guarded, token=token, user=account)[1]
    assert 'cannot impersonate resource "serviceaccounts"' in reasons
    assert 'in the namespace "jobs"' in reasons


def test_a_group_without_a_user_is_refused(guarded: Live) -> None:
    code, reasons = status_as(guarded, group="readers")

    assert code == 500
    assert "without impersonating a user" in reasons


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["list", "pods", "--as", "x", "--as-group", "readers"], "yes"),
        (["create", "pods", "--subresource=eviction", "--as", "reader"], "no"),
    ],
)
def test_kubectl_can_impersonate_a_user(guarded: Live, arguments: list[str], answer: str) -> None:
    kubeconfig: Path = guarded.kubeconfig()
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "auth", "can-i", *arguments]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert answer in result.stdout.split(), result.stdout + result.stderr
