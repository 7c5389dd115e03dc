"""A workload of one replica on a node that retires: a client of its Service sees no failure. An
instance ends only after its load balancers have drained it."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from leeway_sandbox.access_entries import access_key
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import ENDS_AFTER, Group, Scenario
from lightkube import ApiError, Client
from lightkube.codecs import from_dict
from lightkube.resources.apps_v1 import Deployment, StatefulSet
from lightkube.resources.core_v1 import Node, Pod

from tests.aws.test_target_contract import balanced
from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import Environment, events_about, kube_client, say, until
from tests.end_to_end.rights import check_calls_are_granted, granted, used
from tests.end_to_end.surging import ServiceClient, reasons, right_in
from tests.template.granted import granted_to

LOOK = "elasticloadbalancing:DescribeTargetHealth"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


class Surging(Environment):
    """A small cluster in which workloads may surge, and whose nodes a load balancer has as targets;
    the tests are its controller."""

    def __init__(self, sandbox: Sandbox, kube: Client) -> None:
        super().__init__(sandbox)
        self.kube = kube
        self.balancers: Any = client("elbv2", sandbox.aws_url)

    def deploy(self, name: str, kind: str, budget: dict[str, Any]) -> None:
        """Create a workload of one Ready replica, its budget and its Service."""
        labels = {"app": name}
        workload = {**deployment(name, 1, 5), "kind": kind}
        # A client that has read the address of the pod still reaches the pod.
        workload["spec"]["template"]["metadata"]["annotations"] = {ENDS_AFTER: "3s"}
        if kind == "StatefulSet":
            workload["spec"] = {**workload["spec"], "serviceName": name}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        }
        limits = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, **budget},
        }
        for one in (service, limits, workload):
            self.kube.create(from_dict(one))
        until(lambda: [pod for pod in self.pods(name) if pod.status.phase == "Running"])

    def pods(self, name: str) -> list[Any]:
        """Return the pods of a workload that do not terminate."""
        found = self.kube.list(Pod, namespace="default", labels={"app": name})
        return [pod for pod in found if pod.metadata and not pod.metadata.deletionTimestamp]

    def node_of(self, name: str) -> tuple[str, str]:
        """Return the instance and the node of the only pod of a workload."""
        (pod,) = self.pods(name)
        node: Any = self.kube.get(Node, pod.spec.nodeName)
        instance = node.spec.providerID.rsplit("/", 1)[-1]
        self._used.add(instance)
        return instance, node.metadata.name

    def size(self, name: str, kind: str) -> int:
        """Return spec.replicas."""
        resource: Any = Deployment if kind == "Deployment" else StatefulSet
        return int(self.kube.get(resource, name, namespace="default").spec.replicas)

    def reconcile(self) -> None:
        """Run reconcile."""
        (name,) = [s["name"] for s in self.sandbox.schedules() if "reconcile" in s["name"].lower()]
        self.sandbox.fire(str(name))

    def client_of(self, service: str) -> Any:
        """Return a client of the account, for `balanced`."""
        return client(service, self.sandbox.aws_url)

    def states(self, group: str, instance: str) -> list[str]:
        """Return the states of an instance in a target group."""
        answer = self.balancers.describe_target_health(TargetGroupArn=group)
        return [
            one["TargetHealth"]["State"]
            for one in answer["TargetHealthDescriptions"]
            if one["Target"]["Id"] == instance
        ]

    def deregister(self, group: str, instance: str, delay: int) -> None:
        """Deregister an instance, which then drains for `delay` seconds."""
        attribute = {"Key": "deregistration_delay.timeout_seconds", "Value": str(delay)}
        self.balancers.modify_target_group_attributes(TargetGroupArn=group, Attributes=[attribute])
        self.balancers.deregister_targets(TargetGroupArn=group, Targets=[{"Id": instance}])

    def is_excluded(self, name: str) -> bool:
        """Whether a node has the label by which a controller deregisters it."""
        node: Any = self.kube.get(Node, name)
        return EXCLUDED in (node.metadata.labels or {})

    def looks(self) -> int:
        """Return how often retire_node has looked at a target group."""
        assert self.sandbox.deployed
        calls = self.sandbox.status()["aws"]["calls_by_access_key"]
        return sum(
            calls.get(access_key(function.name), {}).get(LOOK, 0)
            for function in self.sandbox.deployed.functions
        )

    def state_of(self, instance: str) -> str:
        """Return the state of an instance."""
        found = self.client_of("ec2").describe_instances(InstanceIds=[instance])
        return str(found["Reservations"][0]["Instances"][0]["State"]["Name"])


@pytest.fixture(scope="module")
def surging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surging]:
    """The cluster, whose manifest asks for surges and for the wait for load balancers."""
    world = Scenario(cluster="surging", groups=(Group("plain", 6),))
    options = {"kubernetes": ["--node-join", "1"], "lambda": ["--retry-delay", "1"]}
    state = tmp_path_factory.mktemp("surging")
    with (
        Sandbox.start(world, state_dir=state, options=options) as sandbox,
        kube_client(sandbox) as kube,
    ):
        say(sandbox, surge=True, waitForTargets=True, churn={"percent": 100})
        yield Surging(sandbox, kube)
        check_calls_are_granted(sandbox)


def test_an_instance_ends_only_after_its_targets_are_unused(surging: Surging) -> None:
    ((instance, node),) = surging.unused_nodes(1).items()
    group = balanced(surging.client_of, "patient", [instance], 3000)
    since, looked = time.time(), surging.looks()
    surging.sandbox.interrupt([instance], rebalance=True, warning=False)
    until(lambda: surging.is_excluded(node))
    surging.deregister(group, instance, delay=3000)
    # The load balancer drains for as long as the test says: an early end is no matter of time.
    until(lambda: surging.looks() > looked + 1)
    assert (surging.states(group, instance), surging.state_of(instance)) == (
        ["draining"],
        "running",
    )
    assert not surging.since(since).outcomes(instance)
    surging.balancers.register_targets(TargetGroupArn=group, Targets=[{"Id": instance}])
    surging.deregister(group, instance, delay=0)
    (outcome,) = surging.wait([instance], since).outcomes(instance)
    assert outcome["result"] == "drained"
    assert "TargetsLeft" not in str(outcome["load_balancers"])
    assert surging.states(group, instance) == []


def test_a_two_minute_notice_waits_for_no_target_and_says_what_it_cuts(
    surging: Surging,
) -> None:
    ((instance, node),) = surging.unused_nodes(1).items()
    group = balanced(surging.client_of, "hasty", [instance], 3000)
    surging.deregister(group, instance, delay=3000)
    since, looked = time.time(), surging.looks()
    surging.sandbox.interrupt([instance])
    (outcome,) = surging.wait([instance], since).outcomes(instance)
    assert outcome["result"] == "drained"
    assert outcome["load_balancers"]["code"] == "TargetsCut"
    said = r"target group hasty lacks at least 2[89]\d\d s of its deregistration delay of 3000 s"
    assert re.search(said, outcome["message"])
    (event,) = events_about(surging.sandbox, node)
    assert re.search(said, str(event.message))
    assert surging.states(group, instance) == ["draining"]
    groups = surging.balancers.describe_target_groups()["TargetGroups"]
    assert surging.looks() - looked == len(groups)


def test_the_role_may_read_targets_and_change_none() -> None:
    rights = {one for one in granted_to("RetireNodeRole") if one.startswith("elasticload")}
    assert rights == {
        "elasticloadbalancing:DescribeTargetGroupAttributes",
        "elasticloadbalancing:DescribeTargetGroups",
        "elasticloadbalancing:DescribeTargetHealth",
    }


@pytest.fixture
def with_right(surging: Surging) -> None:
    """Bind the role in the namespace, once."""
    try:
        surging.kube.create(from_dict(right_in("default")))
    except ApiError as error:
        if error.status.code != 409:
            raise


def test_without_the_right_the_pod_says_which_binding_is_missing(surging: Surging) -> None:
    surging.deploy("poor", "Deployment", {"minAvailable": 1})
    instance, _ = surging.node_of("poor")
    since = time.time()
    surging.sandbox.interrupt([instance], rebalance=True, warning=False)
    command = "--group=leeway:capacity --namespace=default"
    surging.until(since, lambda _: command in reasons(surging.sandbox, instance))
    assert surging.size("poor", "Deployment") == 1
    surging.sandbox.interrupt([instance], late=100)
    surging.wait([instance], since)


@pytest.mark.usefixtures("with_right")
def test_a_client_sees_no_failed_request_while_the_only_pod_of_a_stateful_set_moves(
    surging: Surging,
) -> None:
    name, kind = "queue", "StatefulSet"
    surging.deploy(name, kind, {"minAvailable": 1})
    instance, node = surging.node_of(name)
    (old,) = surging.pods(name)
    caller = ServiceClient(surging.kube, "default", name)
    since = time.time()
    with caller.calling():
        surging.sandbox.interrupt([instance], rebalance=True, warning=False)
        (outcome,) = surging.wait([instance], since).outcomes(instance)
        assert outcome["result"] == "drained"

        def restored() -> bool:
            surging.reconcile()
            time.sleep(0.5)
            return surging.size(name, kind) == 1 and len(surging.pods(name)) == 1

        until(restored)
    assert caller.failures == []
    assert len(caller.answers) > 20
    assert len(set(caller.answers)) > 1
    (new,) = surging.pods(name)
    assert (new.metadata.uid != old.metadata.uid, new.spec.nodeName != node) == (True, True)
    # The client does see it when the only pod goes.
    surging.kube.delete(Pod, new.metadata.name, namespace="default")
    until(lambda: not caller.request())


@pytest.mark.usefixtures("with_right")
def test_a_function_that_is_killed_at_a_step_restores_the_size(surging: Surging) -> None:
    surging.deploy("fragile", "Deployment", {"maxUnavailable": 0})
    instance, _ = surging.node_of("fragile")
    faults = [
        {"function": "*retire*", "execution": f"retire-{instance}-*", "kill": when, "step": step}
        for step in (4, 5)
        for when in ("before", "after")
    ]
    surging.sandbox.faults("lambda", faults)
    caller = ServiceClient(surging.kube, "default", "fragile")
    since = time.time()
    with caller.calling():
        surging.sandbox.interrupt([instance], rebalance=True, warning=False)
        seen = surging.wait([instance], since)
    assert [e for e in seen.of("invocation") if e["outcome"] == "killed"]
    assert {one["result"] for one in seen.outcomes(instance)} == {"drained"}
    assert caller.failures == []
    assert surging.size("fragile", "Deployment") == 1


def test_every_right_of_the_role_is_used_and_no_other(surging: Surging) -> None:
    allowed = granted("leeway-surge") | granted("leeway-drain")
    assert used(surging.sandbox, "RetireNodeRole") <= allowed
    unused = granted("leeway-surge") - used(surging.sandbox, "RetireNodeRole")
    # The sandbox has no KEDA and no Argo, and these workloads have no claims.
    argo = {"get rollouts.argoproj.io", "patch rollouts/scale.argoproj.io"}
    assert unused == {"list scaledobjects.keda.sh", "get persistentvolumeclaims", *argo}
