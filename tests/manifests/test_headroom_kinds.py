"""ScaledObject, Headroom and CapacityBuffer: what is accepted, ignored and refused."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.headroom.pause_pods import IMAGE, deployment_object
from leeway.headroom.plan import ScaleTarget, template_pods
from leeway.headroom.windows import size_at
from leeway.manifests.headroom import CapacityBuffer, Headroom
from leeway.manifests.reading import Reading, read_manifests, read_stored
from leeway.manifests.scaled_object import ScaledObject
from leeway.selection.resources import Resources

from tests.rbac.test_admission import kept_away

DIGEST = IMAGE.partition("@")[2]
USERS = Path(__file__).parent / "users"
CRON = {
    "timezone": "Asia/Seoul",
    "start": "0 9 * * *",
    "end": "0 18 * * *",
    "desiredReplicas": "5",
}


def read(document: dict[str, Any]) -> Reading:
    return read_manifests(yaml.safe_dump(document), "m.yaml")


def scaled_object(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", **(metadata or {})},
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "triggers": [{"type": "cron", "metadata": CRON}],
            **spec,
        },
    }


def headroom(**buffer: Any) -> dict[str, Any]:
    return {
        "apiVersion": "leeway.sh/v1",
        "kind": "Headroom",
        "metadata": {"name": "office"},
        "spec": {
            "buffers": [{"name": "small", "pod": {"requests": {"cpu": 1}}, "replicas": 1, **buffer}]
        },
    }


def placed(**where: Any) -> dict[str, Any]:
    """A buffer whose pods have a place."""
    return {"pod": {"requests": {"cpu": 1}, **where}}


def capacity_buffer(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec,
    }


def refusal(document: dict[str, Any]) -> str:
    reading = read(document)
    assert not reading.written
    return "\n".join(str(problem) for problem in reading.problems)


def test_a_users_scaled_object_is_read_unchanged() -> None:
    text = (USERS / "scaledobject-cron.yaml").read_text()
    (written,) = read_manifests(text, "scaledobject-cron.yaml").written
    assert isinstance(written.manifest, ScaledObject)
    scaled = written.manifest.target()
    assert scaled.target == ScaleTarget("apps/v1", "Deployment", "default", "inflate")
    at = datetime(2026, 11, 20, 3, 16, tzinfo=UTC)
    assert size_at(scaled.schedule, at).replicas == 5
    assert size_at(scaled.schedule, at + timedelta(minutes=4)).replicas == 0


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ({"start": None}, "spec.triggers[0].metadata.start: is missing"),
        ({"timezone": None}, "spec.triggers[0].metadata.timezone: is missing"),
        ({"desiredReplicas": None}, "spec.triggers[0].metadata.desiredReplicas: is missing"),
        ({"end": "0 9 * * *"}, "metadata: expected start and end to differ"),
        ({"end": "00 09 * * ?"}, "metadata: expected start and end to differ"),
        ({"start": "-30 * * * *"}, "metadata.start: minute"),
        ({"start": "0 0 9 * * *"}, "metadata.start: '0 0 9 * * *' has 6 fields: expected five"),
        ({"end": "@daily"}, "metadata.end: '@daily': expected five fields"),
        ({"timezone": "asia/seoul"}, "such as Europe/Berlin; did you mean Asia/Seoul?"),
        (
            {"timezone": "../../etc/passwd"},
            "metadata.timezone: expected a time zone of the IANA database",
        ),
        ({"desiredReplicas": "0"}, "metadata.desiredReplicas: expected at least 1"),
        ({"desiredReplicas": "many"}, "metadata.desiredReplicas: expected a whole number"),
    ],
)
def test_an_invalid_trigger_is_refused_with_its_field(cron: dict[str, Any], said: str) -> None:
    given = {key: value for key, value in {**CRON, **cron}.items() if value is not None}
    assert said in refusal(scaled_object(triggers=[{"type": "cron", "metadata": given}]))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"triggers": [{"type": "prometheus", "metadata": {"query": "up"}}]},
            "spec.triggers[0]: expected a trigger of type cron, got prometheus",
        ),
        ({"triggers": []}, "spec.triggers"),
        ({"idleReplicaCount": 0}, "idleReplicaCount 0: expected less than minReplicaCount (0)"),
        (
            {"minReplicaCount": 2, "idleReplicaCount": 2},
            "idleReplicaCount 2: expected less than minReplicaCount (2)",
        ),
        (
            {"minReplicaCount": 5, "maxReplicaCount": 4},
            "minReplicaCount 5: expected at most maxReplicaCount (4)",
        ),
        ({"scaleTargetRef": {"name": "web/../other"}}, "spec.scaleTargetRef.name"),
        ({"maxReplicaCounts": 5}, "spec.maxReplicaCounts: unknown field; did you mean"),
    ],
)
def test_an_invalid_scaled_object_is_refused_with_its_field(
    spec: dict[str, Any], said: str
) -> None:
    assert said in refusal(scaled_object(**spec))


def test_fields_that_leeway_ignores_are_warnings() -> None:
    reading = read(scaled_object(cooldownPeriod=300, advanced={"scalingModifiers": {}}))
    assert [w.field for w in reading.warnings] == [
        "spec.advanced.scalingModifiers",
        "spec.cooldownPeriod",
    ]


def test_a_window_that_stays_open_is_a_warning() -> None:
    weekend = {**CRON, "start": "0 9 * * 1-5"}
    triggers = [{"type": "cron", "metadata": one} for one in (CRON, weekend)]
    (warning,) = read(scaled_object(triggers=triggers)).warnings
    assert warning.field == "spec.triggers[1].metadata"
    assert "expected one end for each start: '0 18 * * *' fires again" in str(warning)
    always = {"timezone": "UTC", "start": "0 */2 * * *", "end": "0 * * * *", "replicas": 2}
    (warning,) = read(headroom(windows=[always])).warnings
    assert warning.field == "spec.buffers[0].windows[0]"
    assert "the window never closes" in str(warning)


def test_a_paused_scaled_object_keeps_the_size_of_its_target_or_fixes_it() -> None:
    paused, fixed = (
        read(scaled_object({"annotations": {f"autoscaling.keda.sh/{key}": value}})).written[0]
        for key, value in (("paused", "true"), ("paused-replicas", "4"))
    )
    assert isinstance(paused.manifest, ScaledObject)
    assert isinstance(fixed.manifest, ScaledObject)
    assert paused.manifest.target().paused
    assert fixed.manifest.target().fixed == 4
    bad = scaled_object({"annotations": {"autoscaling.keda.sh/paused-replicas": "x"}})
    assert 'paused-replicas"]: expected a whole number' in refusal(bad)


@pytest.mark.parametrize(
    ("value", "paused"),
    [("true", True), ("True", True), ("1", True), ("yes", True), ("", True)]
    + [(value, False) for value in ("false", "False", "0", "f")],
)
def test_the_same_values_pause_as_in_keda(value: str, paused: bool) -> None:
    (written,) = read(scaled_object({"annotations": {"autoscaling.keda.sh/paused": value}})).written
    assert isinstance(written.manifest, ScaledObject)
    assert written.manifest.target().paused is paused


def test_a_pause_of_one_direction_is_a_warning() -> None:
    annotations = {"autoscaling.keda.sh/paused-scale-in": "true"}
    (warning,) = read(scaled_object({"annotations": annotations})).warnings
    assert "paused-scale-in" in str(warning)


def test_a_headroom_gives_the_same_pause_pods_as_a_manual_deployment() -> None:
    """A Deployment of pause pods and its PriorityClass, of users/overprovisioning.yaml."""
    by_hand = {
        item["kind"]: item
        for item in yaml.safe_load_all((USERS / "overprovisioning.yaml").read_text())
    }
    document = headroom(pod={"requests": {"cpu": 1}}, replicas=2)
    document["spec"]["priority"] = -1
    manifest = read(document).written[0].manifest
    assert isinstance(manifest, Headroom)
    (buffer,) = manifest.buffers()
    ours = deployment_object(buffer.pods, buffer.at_least)["spec"]
    theirs = by_hand["Deployment"]["spec"]
    assert ours["replicas"] == theirs["replicas"]
    requests = ours["template"]["spec"]["containers"][0]["resources"]["requests"]
    hand_made = theirs["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {name: str(amount) for name, amount in hand_made.items()}
    assert buffer.pods.priority == by_hand["PriorityClass"]["value"]


@pytest.mark.parametrize(
    ("buffer", "said"),
    [
        (
            {"replicas": 0},
            "buffers[0]: expected at least one of replicas, windows, linear and ladder",
        ),
        ({"linear": {}}, "buffers[0].linear: expected coresPerReplica, nodesPerReplica or both"),
        (
            {"linear": {"nodesPerReplica": 1, "min": 3, "max": 2}},
            "buffers[0].linear: min 3: expected at most max (2)",
        ),
        (
            {"ladder": {"coresToReplicas": [[8, 1], [4, 2]]}},
            "ladder.coresToReplicas: expected steps in ascending order",
        ),
        ({"ladder": {}}, "ladder: expected coresToReplicas, nodesToReplicas or both"),
        ({"leadTime": "7h"}, "leadTime: expected a duration of at most 6h"),
        ({"pod": {"requests": {}}}, "pod.requests"),
        ({"pod": {"requests": {"cpu": "1x"}}}, "pod.requests.cpu: expected a quantity"),
        ({"pod": {"requests": {"cpu": -1}}}, "pod.requests.cpu: expected an amount that is not"),
        ({"name": "Small"}, "buffers[0].name"),
        (placed(labels={"app": "web"}), "buffers[0].pod.labels: unknown field"),
        (placed(tolerations=[{"operator": "Exists"}]), "pod.tolerations: expected the key of"),
        (
            placed(tolerations=[{"key": "leeway.sh/retiring", "operator": "Exists"}]),
            "pod.tolerations: expected the key of a pool's taint, got leeway.sh/retiring",
        ),
        (
            placed(affinity=kept_away(topologyKey="topology.kubernetes.io/zone")),
            "pod.affinity.podAntiAffinity: expected topologyKey kubernetes.io/hostname",
        ),
        (placed(affinity=kept_away("preferred", namespaceSelector={})), "without namespaces and"),
        (placed(affinity={"podAntiAffinity": ["x"]}), "pod.affinity: expected an affinity, as in"),
    ],
)
def test_an_invalid_headroom_is_refused_with_its_field(buffer: dict[str, Any], said: str) -> None:
    assert said in refusal(headroom(**buffer))


@pytest.mark.parametrize(
    ("image", "accepted"),
    [
        (IMAGE, True),
        ("registry.k8s.io/pause:3.9", True),
        (f"registry.k8s.io/pause@{DIGEST}", True),
        (f"mirror.example.com:5000/kubernetes/pause@{DIGEST}", True),
        (f"mirror.example.com/pause:3.10@{DIGEST}", True),
        ("registry.k8s.io/pause", False),
        ("evil.example.com/pause:latest", False),
        (f"evil.example.com/pause@sha256:{'0' * 64}", False),
        (f"evil.example.com/bash@{DIGEST}", False),
        ("registry.k8s.io.example.com/pause:3.10", False),
        (f"{IMAGE}\n", False),
    ],
)
def test_pause_pods_have_an_image_that_only_pauses(image: str, accepted: bool) -> None:
    document = headroom()
    document["spec"]["image"] = image
    reading = read(document)
    assert bool(reading.written) is accepted
    assert accepted or "spec.image: expected registry.k8s.io/pause" in str(reading.problems[0])


def test_pause_pods_may_run_on_every_pool() -> None:
    where = {
        "nodeSelector": {"karpenter.sh/nodepool": "gpu"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": kept_away(),
    }
    (written,) = read(headroom(**placed(**where))).written
    assert isinstance(written.manifest, Headroom)
    (buffer,) = written.manifest.buffers()
    template = deployment_object(buffer.pods, 1)["spec"]["template"]
    assert where.items() <= template["spec"].items()
    ours = {"app.kubernetes.io/managed-by": "leeway", "leeway.sh/headroom": "office-small"}
    assert template["metadata"] == {"labels": ours}


def test_pods_of_a_template_lose_what_pause_pods_may_not_have() -> None:
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists"}
    nodes: dict[str, Any] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}
    }
    manifest = read(capacity_buffer(podTemplateRef={"name": "a"}, replicas=1)).written[0].manifest
    assert isinstance(manifest, CapacityBuffer)
    wide = {**nodes, **kept_away(topologyKey="topology.kubernetes.io/zone")}
    spec = {"tolerations": [gpu, {"operator": "Exists"}], "affinity": wide}
    pods = template_pods(manifest.template_buffer(), spec, Resources())
    assert (pods.tolerations, pods.affinity) == ((gpu,), nodes)
    narrow = {**nodes, **kept_away()}
    pods = template_pods(manifest.template_buffer(), {"affinity": narrow}, Resources())
    assert pods.affinity == narrow


def test_buffers_with_the_same_name_are_refused() -> None:
    document = headroom()
    document["spec"]["buffers"] *= 2
    assert "expected a unique name for each buffer, got 'small' twice" in refusal(document)


def test_names_that_are_too_long_for_a_label_are_refused() -> None:
    document = headroom(name="b" * 40)
    document["metadata"]["name"] = "a" * 22
    assert read(document).written
    document["metadata"]["name"] = "a" * 23
    assert "metadata.name: expected at most 63 characters in NAME-BUFFER" in refusal(document)
    like = {"scalableRef": {"kind": "Deployment", "name": "web"}, "replicas": 2}
    buffer = capacity_buffer(**like)
    buffer["metadata"]["name"] = "w" * 47
    assert read(buffer).written
    buffer["metadata"]["name"] = "w" * 48
    assert "metadata.name: expected at most 47 characters, got 48" in refusal(buffer)


@pytest.mark.parametrize(
    ("linear", "warned"),
    [
        ({"coresPerReplica": 1}, True),
        ({"coresPerReplica": 1, "max": 10}, False),
        ({"coresPerReplica": 2}, False),
        ({"nodesPerReplica": 1}, False),
    ],
)
def test_a_buffer_that_grows_without_limit_is_a_warning(
    linear: dict[str, int], warned: bool
) -> None:
    warnings = [str(warning) for warning in read(headroom(linear=linear)).warnings]
    assert any("spec.buffers[0].linear: expected max" in one for one in warnings) is warned


def test_a_priority_that_autoscalers_ignore_is_a_warning() -> None:
    document = headroom()
    document["spec"]["priority"] = -11
    (warning,) = read(document).warnings
    assert warning.field == "spec.priority"
    document["spec"]["priority"] = 0
    assert "spec.priority: expected at most -1" in refusal(document)


def test_a_capacity_buffer_with_active_capacity_is_read() -> None:
    scalable = {"kind": "Deployment", "name": "web"}
    manifest = read(capacity_buffer(scalableRef=scalable, percentage=20)).written[0].manifest
    assert isinstance(manifest, CapacityBuffer)
    buffer = manifest.template_buffer()
    assert buffer.template_of == ScaleTarget("apps/v1", "Deployment", "shop", "web")
    assert buffer.percentage == 20


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"replicas": 1}, "expected either podTemplateRef or scalableRef"),
        ({"podTemplateRef": {"name": "a"}}, "expected replicas, percentage or limits"),
        (
            {"podTemplateRef": {"name": "a"}, "percentage": 10},
            "percentage: expected scalableRef as well",
        ),
        (
            {"scalableRef": {"kind": "Deployment", "name": "a"}, "percentage": 10, "replicas": 1},
            "expected either replicas or percentage, not both",
        ),
        (
            {"podTemplateRef": {"name": "a"}, "replicas": 1, "provisioningStrategy": "standby"},
            "spec.provisioningStrategy",
        ),
    ],
)
def test_an_unsupported_capacity_buffer_is_refused(spec: dict[str, Any], said: str) -> None:
    assert said in refusal(capacity_buffer(**spec))


def test_functions_look_for_no_warnings() -> None:
    """Nobody reads them, and those about a yearly window take most of the time of its reading."""
    weekend = {**CRON, "start": "0 9 * * 1-5"}
    (written,) = read(scaled_object(triggers=[{"type": "cron", "metadata": weekend}])).written
    stored = read_stored(written.body, "table")
    assert (stored.problems, stored.warnings) == ((), ())
