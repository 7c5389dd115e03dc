"""What schedules run, deployed: keep_headroom turns stored manifests into pause pods and replicas,
and refresh_catalog stores the catalog that `leeway types` reads."""

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import boto3
import pytest
import yaml
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.catalog.unavailable import Offering, UnavailableOfferings
from leeway_cli.main import run
from leeway_cli.selection.sources import sandbox_catalog
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario
from lightkube import ApiError, Client
from lightkube.models.apps_v1 import DeploymentSpec, ReplicaSetSpec, StatefulSetSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.rbac_v1 import RoleRef, Subject
from lightkube.resources.apps_v1 import Deployment, ReplicaSet, StatefulSet
from lightkube.resources.core_v1 import PodTemplate
from lightkube.resources.rbac_authorization_v1 import RoleBinding

from tests.end_to_end.conftest import scaled_object
from tests.end_to_end.environment import PATIENCE, Environment, kube_client
from tests.end_to_end.rights import check_calls_are_granted, granted, used

CLUSTER = "scheduled"
ALWAYS = [{"timezone": "UTC", "start": "*/2 * * * *", "end": "* * * * *", "replicas": 2}]
"""Its end always comes first, or with its start."""

HEADROOM = {
    "apiVersion": "leeway.sh/v1",
    "kind": "Headroom",
    "metadata": {"name": "office"},
    "spec": {
        "buffers": [
            {
                "name": "warm",
                "pod": {"requests": {"cpu": "10m"}},
                "windows": ALWAYS,
                "linear": {"nodesPerReplica": 1000},
            }
        ]
    },
}


def room_like(kind: str, name: str) -> dict[str, Any]:
    like = {"podTemplateRef": {"name": name}}
    if kind != "PodTemplate":
        like = {"scalableRef": {"kind": kind, "name": name}}
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": kind.lower(), "namespace": "default"},
        "spec": {**like, "replicas": 1},
    }


WRITTEN = [
    HEADROOM,
    scaled_object("reports", "Deployment", "reports"),
    scaled_object("ledger", "StatefulSet", "ledger"),
    scaled_object("nobody", "StatefulSet", "nobody"),
    room_like("PodTemplate", "worker"),
    room_like("ReplicaSet", "worker"),
    room_like("Deployment", "reports"),
    room_like("StatefulSet", "ledger"),
]
LABELS = {"app": "reports"}
SELECTOR = LabelSelector(matchLabels=LABELS)
TEMPLATE = PodTemplateSpec(
    metadata=ObjectMeta(labels=LABELS),
    spec=PodSpec(containers=[Container(name="c", image="pause")]),
)


def create_users_own(kube: Client) -> None:
    """The workloads and manifests of users."""

    def meta(name: str) -> ObjectMeta:
        return ObjectMeta(name=name, namespace="default")

    kube.create(Deployment(metadata=meta("reports"), spec=DeploymentSpec(SELECTOR, TEMPLATE)))
    kube.create(
        StatefulSet(
            metadata=meta("ledger"), spec=StatefulSetSpec(SELECTOR, TEMPLATE, serviceName="ledger")
        )
    )
    kube.create(
        ReplicaSet(
            metadata=meta("worker"), spec=ReplicaSetSpec(SELECTOR, replicas=0, template=TEMPLATE)
        )
    )
    kube.create(PodTemplate(metadata=meta("worker"), template=TEMPLATE))


def adopt(kube: Client, role: str) -> None:
    """Grant Leeway its role in the namespace `default`."""
    group = "rbac.authorization.k8s.io"
    kube.create(
        RoleBinding(
            metadata=ObjectMeta(name=role, namespace="default"),
            roleRef=RoleRef(apiGroup=group, kind="ClusterRole", name=role),
            subjects=[Subject(apiGroup=group, kind="Group", name="leeway:headroom")],
        )
    )


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A small cluster. Its schedules run if a test fires them."""
    world = Scenario(cluster=CLUSTER, groups=(Group("plain", 2),))
    idle, state = {"aws": ["--schedule-speed", "0"]}, tmp_path_factory.mktemp("scheduled")
    with Sandbox.start(world, state_dir=state, options=idle) as sandbox:
        yield Environment(sandbox)
        check_calls_are_granted(sandbox)


@pytest.fixture
def kube(env: Environment) -> Iterator[Client]:
    with kube_client(env.sandbox) as client:
        yield client


def size(kube: Client, name: str, namespace: str) -> int | None:
    """Return the replicas of a Deployment, None if it does not exist."""
    try:
        spec = kube.get(Deployment, name, namespace=namespace).spec
    except ApiError as error:
        if error.status.code == 404:
            return None
        raise
    return spec.replicas if spec else None


def tick_until(env: Environment, condition: Callable[[], bool]) -> None:
    """Run keep_headroom until a condition holds at the end of a run."""
    end = time.monotonic() + PATIENCE
    while env.next_run("leeway-keep-headroom") and not condition():
        assert time.monotonic() < end, "headroom was not kept"


def start_anew(sandbox: Sandbox) -> None:
    """Restart the function, so that its next run reads the manifests again."""
    sandbox.faults("lambda", [{"function": "*keep-headroom*", "kill": "before"}])


def leeway(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, *arguments: str) -> None:
    for name, value in sandbox.environment().items():
        monkeypatch.setenv(name, value)
    assert run([*arguments, "--cluster", CLUSTER]) == 0


def headroom(
    monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """Return the headroom that `leeway status` shows."""
    capsys.readouterr()
    leeway(monkeypatch, sandbox, "status", "-o", "json")
    (cluster,) = json.loads(capsys.readouterr().out)["clusters"]
    kept: list[dict[str, Any]] = cluster["headroom"]
    return kept


def test_manifests_become_pause_pods_and_replicas_and_are_reverted(
    env: Environment,
    kube: Client,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sandbox = env.sandbox
    start_anew(sandbox)
    create_users_own(kube)
    file = tmp_path_factory.mktemp("written") / "headroom.yaml"
    file.write_text(yaml.safe_dump_all(WRITTEN))
    leeway(monkeypatch, sandbox, "apply", "-f", str(file))
    tick_until(env, lambda: size(kube, "office-warm", "leeway-headroom") == 2)
    # A missing right in the namespace is a problem with the command that grants it.
    target, buffer = "leeway-headroom-target", "leeway-headroom-buffer"
    problems = {kept["subject"]: kept["problem"] for kept in headroom(monkeypatch, sandbox, capsys)}
    for subject, role in (
        ("Deployment default/reports", target),
        ("capacitybuffer default/podtemplate", buffer),
    ):
        command = f"kubectl create rolebinding {role} --clusterrole={role} --group=leeway:headroom"
        assert problems[subject]["code"] == "HeadroomRightMissing"
        assert problems[subject]["message"].endswith(f"`{command} --namespace=default`.")
    for role in (target, buffer):
        adopt(kube, role)
    tick_until(env, lambda: size(kube, "reports", "default") == 3)
    tick_until(env, lambda: size(kube, "capacity-buffer-statefulset", "default") == 1)
    leeway(monkeypatch, sandbox, "delete", "-f", str(file))
    start_anew(sandbox)
    tick_until(env, lambda: size(kube, "office-warm", "leeway-headroom") is None)
    tick_until(env, lambda: size(kube, "reports", "default") == 1)
    assert used(sandbox, "KeepHeadroomRole") == granted(
        "leeway-headroom", "leeway-headroom-priorities", buffer, target
    )


REGION = "us-east-1"


def test_a_scheduled_run_stores_a_catalog_that_the_command_line_reads(
    env: Environment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox = env.sandbox
    for name, value in sandbox.environment().items():
        monkeypatch.setenv(name, value)
    dynamodb = partial(boto3.client, "dynamodb", region_name=REGION)
    table = DynamoTable(dynamodb, os.environ["LEEWAY_TABLE"])
    (schedule,) = [s["name"] for s in sandbox.schedules() if s["name"].endswith("-refresh-catalog")]
    sandbox.fire(str(schedule))
    until = time.monotonic() + PATIENCE
    while table.get(SURVEY, region=REGION) is None:
        assert time.monotonic() < until, "no catalog was stored"
        time.sleep(1)
    lost = Offering(REGION, "c5.xlarge", "us-east-1a", "spot")
    soon = datetime.now(UTC) + timedelta(minutes=3)
    unavailable = UnavailableOfferings(DynamoTable(dynamodb, os.environ["LEEWAY_TABLE"]))
    unavailable.mark(lost, "interrupted", soon)
    assert run(["types", "--region", REGION, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)["types"]
    assert {one["name"] for one in found} == set(sandbox_catalog(REGION).names)
    gone = [
        (one["name"], offering["zone"], offering["capacityType"])
        for one in found
        for offering in one["offerings"]
        if not offering["available"]
    ]
    assert gone == [("c5.xlarge", "us-east-1a", "spot")]
