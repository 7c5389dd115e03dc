"""Facts of a healthy deployment, for tests that break one thing at a time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway_cli.adopt.changes import Wanted, desired_entries
from leeway_cli.adopt.reachability import Endpoint, FunctionsNetwork
from leeway_cli.adopt.settings.access import EksCluster, Mode
from leeway_cli.adopt.settings.groups import GroupHook, GroupTag, ScalingGroup, Transition
from leeway_cli.adopt.settings.leeway_stack import LeewayStack
from leeway_cli.adopt.settings.objects import cluster_objects
from leeway_cli.doctor.facts import (
    AlarmFacts,
    AliasFacts,
    ClusterFacts,
    ConfigurationFacts,
    ConsumerFacts,
    Facts,
    FunctionFacts,
    InstanceUse,
    PoolFacts,
    QueueFacts,
    RoleFacts,
    RuleFacts,
    ScheduleFacts,
    Unread,
)
from leeway_cli.doctor.names import EVENTS, FUNCTIONS, Event, function_name, schedule_names

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)
ACCOUNT = "arn:aws:{}:us-east-1:123456789012:{}"
NODE_ROLE = "arn:aws:iam::123456789012:role/nodes"

ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "leeway-drain"},
    "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "leeway-drain"},
    "roleRef": {"kind": "ClusterRole", "name": "leeway-drain"},
    "subjects": [{"kind": "Group", "name": "leeway:drain"}],
}
OBJECTS = cluster_objects([ROLE, BINDING])

STACK = LeewayStack(
    name="leeway",
    table="leeway-Table",
    groups={"arn:aws:iam::123456789012:role/retire": "leeway:drain"},
    clusters=("prod",),
    node_roles=(NODE_ROLE,),
    status="UPDATE_COMPLETE",
    version="0.1.0",
)
HOOKS = (
    GroupHook("web", "leeway-drain", Transition.TERMINATING, 300),
    GroupHook("web", "leeway-admit", Transition.LAUNCHING, 300),
)


def was_read[T](part: T | Unread) -> T:
    assert not isinstance(part, Unread)
    return part


def arn(service: str, name: str) -> str:
    return ACCOUNT.format(service, name)


def lambda_arn(function: str) -> str:
    return arn("lambda", f"function:leeway-{function}")


def rule(event: Event, **changes: Any) -> RuleFacts:
    pattern: dict[str, Any] = {"source": [event.source], "detail-type": [event.detail_type]}
    if event.detail:
        pattern["detail"] = {name: list(values) for name, values in event.detail.items()}
    given: dict[str, Any] = {
        "name": f"leeway-{event.detail_type}".replace(" ", ""),
        "enabled": True,
        "pattern": pattern,
        "targets": (lambda_arn("receive-notice"),),
    }
    return RuleFacts(**(given | changes))


def group(name: str = "web", **changes: Any) -> ScalingGroup:
    given: dict[str, Any] = {
        "name": name,
        "tags": {"eks:cluster-name": GroupTag(name, "prod")},
        "hooks": tuple(replace(one, group=name) for one in HOOKS),
        "desired": 3,
        "maximum": 6,
        "zones": ("us-east-1a", "us-east-1b"),
        "types": ("m5.large", "m6i.large"),
    }
    return ScalingGroup(**(given | changes))


def spot(count: int = 3, **changes: Any) -> tuple[InstanceUse, ...]:
    given: dict[str, Any] = {
        "instance_type": "m5.large",
        "market": "spot",
        "vcpus": 2,
        "group": "web",
        "cluster": "prod",
    }
    return (InstanceUse(**(given | changes)),) * count


def cluster(**changes: Any) -> ClusterFacts:
    wanted = Wanted("prod", STACK, OBJECTS, ("web",), (NODE_ROLE,))
    given: dict[str, Any] = {
        "name": "prod",
        "eks": EksCluster(
            "prod",
            "ACTIVE",
            "1.34",
            Mode.API,
            Endpoint("prod", "https://prod", "vpc-1", public=True, private=False),
        ),
        "entries": tuple(desired_entries(wanted)),
        "objects": OBJECTS,
        "configuration": ConfigurationFacts(pools=("general",)),
        "groups": (group(),),
        "pools": (PoolFacts("general", "nodes", launched=True),),
        "roles": (
            RoleFacts(
                "nodes",
                arn=NODE_ROLE,
                policies=frozenset(
                    {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}
                ),
            ),
        ),
        "workloads": (),
        "rights": (),
    }
    return ClusterFacts(**(given | changes))


def healthy(**changes: Any) -> Facts:
    """Facts without a finding; `changes` are other parts."""
    names = schedule_names("leeway", in_vpc=False)
    given: dict[str, Any] = {
        "now": NOW,
        "region": "us-east-1",
        "version": "0.1.0",
        "ahead": timedelta(0),
        "stack": STACK,
        "functions": tuple(
            FunctionFacts(function_name("leeway", one), "Active", "Successful") for one in FUNCTIONS
        ),
        "aliases": (
            AliasFacts("leeway-retire-node", "live", "7"),
            AliasFacts("leeway-admit-node", "live", "3"),
        ),
        "consumers": (ConsumerFacts("uuid", "Enabled"),),
        "concurrency": 1000,
        "rules": tuple(map(rule, EVENTS)),
        "schedules": tuple(
            ScheduleFacts(name, True, lambda_arn(function)) for name, function in names.items()
        ),
        "queues": (QueueFacts("leeway-Failures", "https://sqs/leeway-Failures", 0),),
        "alarms": (AlarmFacts("leeway-NoticesLate", "OK", "", notifies=True),),
        "instances": spot(),
        "quotas": {"L-34B43A08": 1000.0},
        "spot_role": True,
        "catalog": {"types": NOW - timedelta(hours=6)},
        "network": FunctionsNetwork("leeway"),
        "wanted_objects": OBJECTS,
        "clusters": (cluster(),),
    }
    return Facts(**(given | changes))
