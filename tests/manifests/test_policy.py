"""The policy of a Cluster manifest: its fields override the defaults."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.durations import parse_duration
from leeway.manifests.cluster import Cluster, cluster_policy
from leeway.manifests.reading import read_manifests
from leeway.notices import NoticeKind
from leeway.policy.rules import (
    DEFAULTS,
    Action,
    ClusterPolicy,
    OnBlocked,
    Policy,
    Replacement,
    Worth,
)


def policy_of(spec: dict[str, Any]) -> ClusterPolicy:
    document = {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": "prod"},
        "spec": spec,
    }
    return cluster_policy(Cluster.model_validate_json(json.dumps(document)))


WRITTEN = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["ignore", "cordon", "retire"]),
        "deadline": st.sampled_from(["1s", "90s", "1m55s"]),
        "replacement": st.sampled_from([one.value for one in Replacement]),
        "onBlocked": st.sampled_from([one.value for one in OnBlocked]),
    },
)
OF_NO_MANIFEST = {NoticeKind.TEST_NOTIFICATION, NoticeKind.CAPACITY_RETURN}
KINDS = [k for k in NoticeKind if k not in {NoticeKind.LAUNCH_HOOK, *OF_NO_MANIFEST}]


def expected(default: Policy, written: dict[str, str]) -> Policy:
    """The default with every written field put in by hand."""
    if "action" in written:
        default = replace(default, action=Action(written["action"]))
    if "deadline" in written:
        default = replace(default, within=parse_duration(written["deadline"]))
    if "replacement" in written:
        default = replace(default, replacement=Replacement(written["replacement"]))
    if "onBlocked" in written:
        default = replace(default, on_blocked=OnBlocked(written["onBlocked"]))
    return default


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(KINDS), WRITTEN))
def test_fields_that_are_set_override_the_defaults_and_nothing_else(
    written: dict[NoticeKind, dict[str, str]],
) -> None:
    found = policy_of({"notices": {kind.value: said for kind, said in written.items()}})
    assert found.notices.keys() == DEFAULTS.keys()
    for kind, default in DEFAULTS.items():
        assert found.notices[kind] == expected(default, written.get(kind, {}))


def test_an_empty_manifest_gives_the_default_policy() -> None:
    assert policy_of({}) == ClusterPolicy()


@pytest.mark.parametrize("action", ["ignore", "admit"])
def test_the_policy_of_launch_hooks_is_admit_or_ignore(action: str) -> None:
    found = policy_of({"notices": {"launch-hook": {"action": action, "deadline": "20m"}}})
    hook = found.notices[NoticeKind.LAUNCH_HOOK]
    assert (hook.action, hook.within) == (Action(action), timedelta(minutes=20))


def test_the_manifest_sets_what_a_move_is_worth() -> None:
    found = policy_of({"giveBack": {"horizon": "90m", "usdPerPodMoved": 0.5}}).worth
    assert found == Worth(timedelta(minutes=90), 0.5)
    assert policy_of({"giveBack": {"leastSavingPercent": 20}}).worth == Worth(share=0.2)
    assert policy_of({"giveBack": {"leastAge": "1h"}}).worth == Worth(least_age=timedelta(hours=1))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"horizon": "0s"}, "spec.giveBack.horizon"),
        ({"horizon": "721h"}, "at most 720h"),
        ({"usdPerPodMoved": -0.1}, "spec.giveBack.usdPerPodMoved"),
        ({"usdPerPodMoved": "5 cents"}, "spec.giveBack.usdPerPodMoved"),
        ({"leastSavingPercent": 101}, "spec.giveBack.leastSavingPercent"),
        ({"perPod": 1}, "spec.giveBack.perPod"),
    ],
)
def test_a_wrong_worth_of_a_move_has_one_clear_line(written: dict[str, Any], expected: str) -> None:
    document = {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": "prod"},
        "spec": {"giveBack": written},
    }
    (problem,) = read_manifests(json.dumps(document), "prod.yaml").problems
    assert expected in str(problem)
    assert "\n" not in str(problem)
