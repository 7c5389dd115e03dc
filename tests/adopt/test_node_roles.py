"""The access entries of node roles, by the node classes that name them."""

import json
from datetime import UTC, datetime

import pytest
from leeway.manifests.configuration import StoredManifest
from leeway_cli.adopt.changes import Wanted, desired_entries
from leeway_cli.adopt.plan import windows_roles, without_other_clusters

from tests.doctor.cases import STACK

ROLE = "arn:aws:iam::123456789012:role/nodes"


def stored(name: str, **spec: object) -> StoredManifest:
    body = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {"role": "nodes", **spec},
    }
    at = datetime(2026, 11, 23, tzinfo=UTC)
    resource = "ec2nodeclass.karpenter.k8s.aws"
    return StoredManifest(resource, "", name, json.dumps(body), 1, "0.1.0", at)


WINDOWS = stored("windows", amiFamily="Windows2022")
BY_ALIAS = stored("by-alias", amiSelectorTerms=[{"alias": "windows2025@latest"}])
LINUX = stored("linux", amiFamily="Bottlerocket")
BY_DEFAULT = stored("by-default")
OF_ANOTHER = stored("another", amiFamily="AL2023", role="others")


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([WINDOWS], "EC2_WINDOWS"),
        ([WINDOWS, BY_ALIAS, OF_ANOTHER], "EC2_WINDOWS"),
        ([WINDOWS, LINUX], "EC2_LINUX"),
        ([WINDOWS, BY_DEFAULT], "EC2_LINUX"),
        ([LINUX], "EC2_LINUX"),
        ([], "EC2_LINUX"),
    ],
)
def test_the_role_of_pools_of_windows_alone_gets_an_entry_for_windows(
    classes: list[StoredManifest], expected: str
) -> None:
    roles = (ROLE,)
    wanted = Wanted("prod", STACK, (), (), roles, windows_roles(roles, classes))
    types = {one.principal: one.type for one in desired_entries(wanted)}
    assert types[ROLE] == expected


def test_a_role_of_another_cluster_gets_no_entry_because_a_manifest_names_it() -> None:
    other, shared = f"{ROLE}-2", f"{ROLE}-3"
    joined = {ROLE: ["prod"], f"{ROLE}-1": [], other: ["payments"], shared: ["payments", "prod"]}
    own, warnings = without_other_clusters("prod", joined)
    assert own == (ROLE, f"{ROLE}-1")
    for role, warning in zip((other, shared), warnings, strict=True):
        assert f"Nodes with role {role} can join payments" in warning
        assert "leeway.sh/cluster/prod" in warning
