"""The hashes of settings that an instance has in a tag: each part changes by its own settings."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.launch.node_settings import VERSION, read_tag_value, settings_hashes, tag_value

from tests.launch.pools import document, node_class, pool, settings

PLAIN = settings_hashes(settings(node_class()))

CHANGES: dict[str, dict[str, Any]] = {
    "block-devices": {
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "30Gi"}}]
    },
    "connections": {"connectionTracking": {"udpTimeout": 60}},
    "kubelet": {"kubelet": {"maxPods": 20}},
    "metadata-options": {"metadataOptions": {"httpPutResponseHopLimit": 2}},
    "monitoring": {"detailedMonitoring": True},
    "public-address": {"associatePublicIPAddress": False},
    "role": {"role": "others"},
    "tags": {"tags": {"team": "web"}},
    "user-data": {"userData": "#!/bin/sh\ntrue"},
}


TAINT = {"key": "team", "value": "web", "effect": "NoSchedule"}
OF_POOL: dict[str, dict[str, Any]] = {
    "annotations": pool(annotations={"karpenter.sh/do-not-disrupt": "true"}),
    "labels": pool(labels={"team": "web"}),
    "taints": pool(template={"taints": [TAINT]}),
}


def changed(**spec: Any) -> set[str]:
    """The parts that differ from those of the plain node class."""
    return differing(settings_hashes(settings(node_class(**spec))))


def changed_by(other: dict[str, Any]) -> set[str]:
    """The parts of another pool that differ."""
    return differing(settings_hashes(settings(other, node_class())))


def differing(found: Mapping[str, str]) -> set[str]:
    assert found.keys() == PLAIN.keys()
    return {part for part in found if found[part] != PLAIN[part]}


def test_every_part_is_changed_by_a_setting() -> None:
    assert CHANGES.keys() | OF_POOL.keys() == PLAIN.keys()


@pytest.mark.parametrize("part", CHANGES)
def test_a_setting_changes_only_its_part(part: str) -> None:
    assert changed(**CHANGES[part]) == {part}


def test_what_selectors_select_is_compared_with_the_instance_and_changes_no_hash() -> None:
    assert not changed(subnetSelectorTerms=[{"id": "subnet-0a"}])
    assert not changed(securityGroupSelectorTerms=[{"id": "sg-0a"}])
    assert not changed(amiSelectorTerms=[{"alias": "al2023@latest"}])


def test_a_value_that_is_the_default_and_the_order_of_devices_change_no_hash() -> None:
    assert not changed(metadataOptions={"httpTokens": "required"}, tags={})
    devices = [
        {"deviceName": f"/dev/xvd{name}", "ebs": {"volumeSize": "30Gi"}} for name in ("a", "b")
    ]
    both, reverse = (
        settings_hashes(settings(node_class(blockDeviceMappings=given)))
        for given in (devices, devices[::-1])
    )
    assert both == reverse


@pytest.mark.parametrize("part", OF_POOL)
def test_what_a_node_gets_from_its_pool_changes_only_its_part(part: str) -> None:
    assert changed_by(OF_POOL[part]) == {part}


def test_a_startup_taint_is_another_taint_than_the_same_for_good() -> None:
    startup = pool(template={"startupTaints": [TAINT]})
    assert changed_by(startup) == {"taints"}
    hashes = [settings_hashes(settings(one, node_class())) for one in (startup, OF_POOL["taints"])]
    assert hashes[0] != hashes[1]


def test_the_order_of_taints_changes_no_hash() -> None:
    taints = [TAINT, {**TAINT, "key": "other"}]
    both = (pool(template={"taints": given}) for given in (taints, taints[::-1]))
    first, second = (settings_hashes(settings(one, node_class())) for one in both)
    assert first == second


def test_what_holds_for_nodes_that_exist_changes_no_hash() -> None:
    rules = {"expireAfter": "1h", "terminationGracePeriod": "1m"}
    assert not changed_by(pool(template=rules, limits={"cpu": "9"}, weight=3))
    assert not changed_by(pool(categories=["c"])), "requirements are compared with the node"


def test_tags_of_the_cluster_count_with_those_of_the_node_class() -> None:
    def hashes(*documents: dict[str, Any]) -> str:
        return settings_hashes(settings(*documents))["tags"]

    defaults = document("Cluster", "prod", {"defaults": {"tags": {"team": "web"}}})
    assert hashes(node_class(), defaults) == hashes(node_class(tags={"team": "web"}))


def test_a_tag_has_the_hashes_in_a_form_that_ec2_accepts() -> None:
    value = tag_value(PLAIN)
    assert read_tag_value(value) == PLAIN
    assert re.fullmatch(r"[a-zA-Z0-9 _.:/=+@-]{1,256}", value)


@pytest.mark.parametrize("value", ["", "v0 tags=0", "v10 tags=0", "tags=0", f" {VERSION} tags=0"])
def test_hashes_of_another_version_are_not_read(value: str) -> None:
    assert read_tag_value(value) == {}


@given(st.text(max_size=256).map(lambda text: f"{VERSION} {text}"))
def test_any_value_of_a_tag_can_be_read(value: str) -> None:
    assert all("=" not in part and " " not in part for part in read_tag_value(value))
