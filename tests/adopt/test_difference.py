"""The steps to a cluster under care, and back: for random clusters, stopped at random steps."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.typed_json import dumps, loads
from leeway_cli.adopt.adoptions import StoredAdoption
from leeway_cli.adopt.changes import (
    Change,
    Setting,
    Wanted,
    by_key,
    desired_settings,
    difference,
    recorded_change,
    undo,
)
from leeway_cli.adopt.settings.access import AccessEntry, Authentication, Mode
from leeway_cli.adopt.settings.groups import GroupHook, GroupTag, Transition
from leeway_cli.adopt.settings.home import ClusterManifest
from leeway_cli.adopt.settings.leeway_stack import LeewayStack, ManagedCluster
from leeway_cli.adopt.settings.objects import ClusterObject, cluster_object

ROLE = "arn:aws:iam::123456789012:role/leeway-retire"
OTHER_ROLE = "arn:aws:iam::123456789012:role/leeway-watch"
NODE_ROLE = "arn:aws:iam::123456789012:role/nodes"
STACK = LeewayStack("leeway", "table", {ROLE: "leeway:drain", OTHER_ROLE: "leeway:watch"})


def cluster_role(name: str, *verbs: str) -> ClusterObject:
    return cluster_object(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": list(verbs)}],
        }
    )


ROLES = (cluster_role("leeway-drain", "get", "patch"), cluster_role("leeway-watch", "list"))
GROUPS = ("web", "batch")
WANTED = Wanted("prod", STACK, ROLES, GROUPS, (NODE_ROLE,))

some_groups = st.frozensets(st.sampled_from(["leeway:drain", "viewers", "admins"]))
hook_fields = st.builds(
    GroupHook,
    group=st.sampled_from(GROUPS),
    name=st.sampled_from(["leeway-drain", "leeway-admit", "theirs"]),
    transition=st.sampled_from(Transition),
    timeout=st.sampled_from([30, 300]),
)
existing = st.one_of(
    st.builds(
        AccessEntry, st.sampled_from([ROLE, OTHER_ROLE, "arn:aws:iam::1:user/a"]), some_groups
    ),
    st.just(AccessEntry(NODE_ROLE, type="EC2_LINUX")),
    st.sampled_from([*ROLES, replace(cluster_role("leeway-drain", "*"), ours=False)]),
    st.builds(GroupTag, st.sampled_from(GROUPS), st.sampled_from(["prod", "dev"]), st.booleans()),
    hook_fields,
    st.sampled_from([ClusterManifest("prod", "theirs"), ManagedCluster("leeway", "prod")]),
)


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Setting]:
    found = by_key(*draw(st.lists(existing)))
    mode = Authentication(draw(st.sampled_from(Mode)))
    return found | by_key(mode)


def apply(state: dict[str, Setting], change: Change) -> dict[str, Setting]:
    if change.after is None:
        return {key: value for key, value in state.items() if key != change.key}
    return state | {change.key: change.after}


def adopt(
    state: dict[str, Setting], recorded: dict[str, Change], wanted: Wanted, calls: int
) -> dict[str, Setting]:
    """Make this many calls, half of which are writes of the record; then the process is killed."""
    for step in difference(wanted.cluster, desired_settings(wanted), state).steps:
        if calls <= 0:
            break
        key = step.change.key
        recorded[key] = recorded_change(recorded.get(key), step.change)
        if calls > 1:
            state = apply(state, step.change)
        calls -= 2
    return state


def without_lasting(state: dict[str, Setting]) -> dict[str, Setting]:
    """The settings without those that release leaves."""
    lasting = {"authentication", "spot-role"}
    return {key: value for key, value in state.items() if key not in lasting}


@given(before=clusters(), stops=st.lists(st.integers(0, 30), max_size=4))
def test_adopt_converges_wherever_it_was_killed_and_release_undoes_it(
    before: dict[str, Setting], stops: list[int]
) -> None:
    recorded: dict[str, Change] = {}
    state = before
    for calls in stops:
        some = replace(WANTED, groups=GROUPS[: calls % 3])
        state = adopt(state, recorded, some, calls)

    state = adopt(state, recorded, WANTED, 1000)

    assert difference("prod", desired_settings(WANTED), state).steps == ()
    for change in undo(recorded.values(), state)[0]:
        state = apply(state, change)
    assert without_lasting(state) == without_lasting(before)


@given(before=clusters(), stop=st.integers(0, 30), theirs=existing)
def test_release_leaves_what_somebody_changed_after_adopt(
    before: dict[str, Setting], stop: int, theirs: Setting
) -> None:
    recorded: dict[str, Change] = {}
    state = adopt(before, recorded, WANTED, 1000) | {theirs.key: theirs}

    changes, _ = undo(recorded.values(), state)
    for change in changes[:stop]:
        state = apply(state, change)
    for change in undo(recorded.values(), state)[0]:
        state = apply(state, change)

    was_adopted = recorded.get(theirs.key)
    if was_adopted is None or theirs != was_adopted.after:
        assert state[theirs.key] == theirs
    others = {key for key in before if key not in (theirs.key, "authentication")}
    assert all(state[key] == before[key] for key in others)


@given(before=clusters())
def test_a_step_that_changes_an_existing_setting_asks_for_consent(
    before: dict[str, Setting],
) -> None:
    found = difference("prod", desired_settings(WANTED), before)

    for step in found.steps:
        now = step.change.before
        if now is not None and not (isinstance(now, ClusterObject) and now.ours):
            assert step.consent is not None, step


@given(setting=existing)
def test_a_change_survives_its_record(setting: Setting) -> None:
    stored = StoredAdoption(cluster="prod", changes=(Change(setting, None),))
    assert loads(StoredAdoption, dumps(stored)) == stored


def test_an_access_entry_keeps_the_groups_that_it_has() -> None:
    theirs = AccessEntry(ROLE, frozenset({"viewers"}))
    current = by_key(Authentication(Mode.API), theirs)

    step = difference("prod", [AccessEntry(ROLE, frozenset({"leeway:drain"}))], current).steps[0]

    assert step.change.after == AccessEntry(ROLE, frozenset({"viewers", "leeway:drain"}))
    assert step.consent is not None
    assert "exists with the groups" in step.consent


def test_a_binding_of_another_role_is_a_blocker() -> None:
    def binding(role: str) -> ClusterObject:
        return cluster_object(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "leeway-drain"},
                "roleRef": {"kind": "ClusterRole", "name": role},
            }
        )

    found = difference("prod", [binding("leeway-drain")], by_key(binding("cluster-admin")))

    (blocker,) = found.blockers
    assert "which Kubernetes cannot change" in blocker
    assert found.steps == ()


@pytest.mark.parametrize("type_", ["EC2_LINUX", "FARGATE_LINUX"])
def test_an_entry_of_another_type_is_a_blocker(type_: str) -> None:
    current = by_key(AccessEntry(ROLE, type=type_))

    found = difference("prod", [AccessEntry(ROLE, frozenset({"leeway:drain"}))], current)

    (blocker,) = found.blockers
    assert "which EKS cannot change to" in blocker


def test_the_manifest_of_a_user_stays() -> None:
    theirs = ClusterManifest("prod", json.dumps({"spec": {"dryRun": True}}))

    assert difference("prod", [ClusterManifest("prod", "{}")], by_key(theirs)).steps == ()


@pytest.mark.parametrize(
    "forged",
    [
        ClusterObject("/api/v1/namespaces/kube-system", "Namespace", "kube-system", "{}"),
        ClusterObject("/api/v1/namespaces/leeway-x/../kube-system", "Namespace", "leeway-x", "{}"),
        ClusterObject("/apis/apps/v1/deployments/leeway-x", "ClusterRole", "leeway-x", "{}"),
        GroupTag("web", "prod", tag="aws:other"),
        GroupHook("web", "theirs", Transition.TERMINATING, 30),
    ],
)
def test_release_touches_no_setting_that_adopt_never_writes(forged: Setting) -> None:
    changes, (left,) = undo([Change(None, forged)], by_key(forged))

    assert changes == ()
    assert "`leeway adopt` never writes it" in left
