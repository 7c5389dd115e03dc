"""The promises of a scale-up, checked from outside of Leeway.

The checks read the sandbox's journals, the table, and the live state of the cluster and AWS:

1. No pod that an offering of a pool holds is pending, unless an Event names a limit, a brake or an
   error of EC2. Every pending pod has an Event.
2. Nothing is bought twice: at each launch no more nodes were new than pods waited, and every
   instance got a pod.
3. Limits of pools and spec.launches.atMost held at every moment.
4. Every instance has one intent, an admission, and a Node or a reason. Every intent has an end.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from math import inf

from leeway.aws.launch_intents import DynamoLaunchIntents
from leeway.aws.manifests import DynamoManifests
from leeway.aws.records import DynamoRecords
from leeway.clock import SystemClock
from leeway.instances.owners import INTENT_TAG, POOL_TAG
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.launch.intent import LaunchIntent
from leeway.launch.node_settings import settings_of
from leeway.manifests.base import Manifest
from leeway.manifests.cluster import Cluster
from leeway.manifests.reading import read_stored
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.launch_cap import WINDOW
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod
from leeway.selection.pools import NodePool
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Event

from cli.selection.catalogs import sandbox_catalog
from sandbox.provisioning import client
from sandbox.sandbox import Sandbox
from tests.end_to_end.environment import Entry, Journal
from tests.end_to_end.provisioning import CLUSTER, simulated_time, table_of

NOTHING_FITS = {
    "NoInstanceTypeMatches",
    "NoNodePoolMatches",
    "RequestTooLarge",
    "RequirementsConflict",
    "TaintNotTolerated",
}
"""The reasons that say that no offering of a pool holds a pod."""


CLOCK_SLACK = 1.0
"""Seconds by which the journal may have a pod later than the API server."""


@dataclass(frozen=True)
class Bought:
    """A launched instance and its Node, empty without one. Times are epoch seconds: the launch, its
    first pod, the end as a place for pods, and its own end."""

    instance: str
    instance_type: str
    pool: str
    intent: str
    at: float
    node: str = ""
    used: float = inf
    until: float = inf
    ended: float = inf


@dataclass(frozen=True)
class _Pod:
    """When a pod was created, bound to its node, and ended, in epoch seconds; and its instance."""

    created: float
    bound: float
    ended: float
    instance: str


@dataclass(frozen=True)
class Evidence:
    """What the sandbox shows. `closed` are all instances that EC2 interrupted or ended, or whose
    Node was cordoned, with the time. `spare` are pools whose nodes may stay empty."""

    sandbox: Sandbox
    seen: Journal
    bought: Mapping[str, Bought]
    intents: Mapping[str, LaunchIntent]
    admitted: Collection[str]
    closed: Mapping[str, float]
    manifests: Collection[Manifest]
    spare: Collection[str]

    @property
    def pools(self) -> list[NodePool]:
        """The pools of the cluster."""
        return [one.template.pool for one in settings_of(self.manifests)]


def check_accounts(sandbox: Sandbox) -> None:
    """Check the promises about limits, and the accounts of instances: those that hold even if
    tests have deleted the pods."""
    _check(sandbox, ALWAYS, (), timeout=5)


def check_promises(sandbox: Sandbox, *, spare: Collection[str] = (), timeout: float = 40) -> None:
    """Check all promises after a scale-up. The nodes of the pools `spare` may stay empty. `timeout`
    is in seconds: nodes join, and the buyer tells about pods."""
    _check(sandbox, {**ALWAYS, **AT_THE_END}, spare, timeout)


def _check(
    sandbox: Sandbox, promises: Mapping[str, "Promise"], spare: Collection[str], timeout: float
) -> None:
    until = time.monotonic() + timeout
    while found := list(_violations(_evidence(sandbox, spare), promises)):
        assert time.monotonic() < until, f"{len(found)} broken promises:\n" + "\n".join(found)
        time.sleep(0.5)


def _violations(evidence: Evidence, promises: Mapping[str, "Promise"]) -> Iterator[str]:
    for promise, broken in promises.items():
        yield from (f"{promise}: {what}" for what in broken(evidence))


def launched_twice(evidence: Evidence) -> Iterator[str]:
    """Yield the launches after which more new nodes were there than pods that waited for one. Each
    new node gets at least one of these pods. A pod on a node that is cordoned or taken later counts
    as waiting: its replacement may come first."""
    pods = list(_pods(evidence.seen))
    own = [one for one in evidence.bought.values() if one.pool not in evidence.spare]
    for at in sorted({one.at for one in own}):
        new = [one for one in own if one.at <= at < min(one.until, one.used)]
        waiting = sum(
            pod.created <= at + CLOCK_SLACK
            and at < pod.ended
            and (at < pod.bound or pod.instance in evidence.closed)
            for pod in pods
        )
        if len(new) > waiting:
            names = ", ".join(one.instance for one in new)
            yield f"{waiting} pods waited for the {len(new)} new nodes {names}"


def _pods(seen: Journal) -> Iterator[_Pod]:
    ended: dict[str, float] = {}
    for entry in [*seen.of("pod-ended"), *seen.of("pod-deletion")]:
        ended[entry["uid"]] = min(entry["at"], ended.get(entry["uid"], inf))
    bound, places = {e["uid"]: e for e in seen.of("pod-bound")}, _Places(seen)
    for entry in seen.of("pod-created"):
        if _is_workload(entry):
            place, uid = bound.get(entry["uid"], {}), entry["uid"]
            times = entry["at"], place.get("at", inf), ended.get(uid, inf)
            yield _Pod(*times, places.of(place) if place else "")


def _is_workload(entry: Entry) -> bool:
    return not str(entry["owner"]).startswith(("DaemonSet/", "Node/"))


def exceeded_limits(evidence: Evidence) -> Iterator[str]:
    """Yield the moments at which a pool had more than its limits, or too much was launched."""
    for pool in evidence.pools:
        own = [one for one in evidence.bought.values() if one.pool == pool.name]
        for name, most in (pool.limits or {}).items():
            for moment in own:
                lived = [one for one in own if one.at <= moment.at < one.ended]
                amount = sum(_amount(evidence.sandbox, one, name) for one in lived)
                if amount > most:
                    yield f"pool {pool.name} had {name} {amount} of {most} at {moment.at:.1f}"
    clusters = (one for one in evidence.manifests if isinstance(one, Cluster))
    cap = next((one.spec.launches.at_most for one in clusters), None)
    times = sorted(simulated_time(evidence.sandbox, one.at) for one in evidence.bought.values())
    for end in times if cap is not None else ():
        count = sum(end - WINDOW.total_seconds() < at <= end for at in times)
        if cap is not None and count > cap:
            yield f"{count} instances were launched in ten minutes, {cap} are the maximum"


def _amount(sandbox: Sandbox, one: Bought, resource: str) -> int:
    if resource == "nodes":
        return 1
    return _processors(sandbox.aws_url, one.instance_type) * 1000 if resource == "cpu" else 0


@cache
def _processors(aws_url: str, instance_type: str) -> int:
    found = client("ec2", aws_url).describe_instance_types(InstanceTypes=[instance_type])
    return int(found["InstanceTypes"][0]["VCpuInfo"]["DefaultVCpus"])


def unaccounted(evidence: Evidence) -> Iterator[str]:
    """Yield instances without an intent or admission, and intents without an end."""
    named = Counter(i.instance for one in evidence.intents.values() for i in one.instances)
    for name in named.keys() - evidence.bought.keys():
        yield f"an intent names {name}, which no fleet launched"
    for name, one in evidence.bought.items():
        if one.intent in evidence.intents and named[name] != 1:
            yield f"{named[name]} intents name {name}"
        if name not in evidence.admitted:
            yield f"{name} has no admission"
    for intent in evidence.intents.values():
        if not intent.is_answered:
            yield f"intent {intent.id} of pool {intent.pool} has no answer"
        for waiting in intent.to_admit:
            yield f"intent {intent.id} has not begun the admission of {waiting.instance}"


def unused_instances(evidence: Evidence) -> Iterator[str]:
    """Yield instances that no pod was bound to, other than those of DaemonSets. An instance that
    did not boot, or that EC2 took, has its reason."""
    refused = {str(e["instance"]) for e in evidence.seen.of("boot-refused")}
    for name, one in evidence.bought.items():
        if one.pool in evidence.spare or name in refused or one.until < inf:
            continue
        if not one.node:
            yield f"{name} of pool {one.pool} has no Node"
        elif one.used == inf:
            yield f"{name} of pool {one.pool} has got no pod"


def waiting_pods(evidence: Evidence) -> Iterator[str]:
    """Yield the pending pods without an Event, and those whose Event says that nothing fits while
    an offering does."""
    kubeconfig = evidence.sandbox.kubeconfig
    with closing(kubeconfig_connection(kubeconfig, None)) as connection:
        state = KubernetesClusterStates(lambda _: connection, SystemClock()).read(CLUSTER)
    told = _told(evidence.sandbox) if state.waiting else {}
    for waiting in state.waiting:
        codes = told.get(waiting.pod.name, set())
        if not codes:
            yield f"{waiting.pod.name} is pending without an Event"
        elif codes <= NOTHING_FITS and _fits(waiting.pod, evidence.pools, state):
            yield f"{waiting.pod.name} is pending with {codes}, and an offering holds it"


def _told(sandbox: Sandbox) -> dict[str, set[str]]:
    """Return the codes of Leeway's Events about each pod, by `namespace/name`."""
    codes: dict[str, set[str]] = defaultdict(set)
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        for event in kube.list(Event, namespace="*"):
            about = event.involvedObject
            if event.reportingComponent == "leeway" and about.kind == "Pod":
                codes[f"{about.namespace}/{about.name}"].add(str(event.reason))
    return codes


def _fits(pod: Pod, pools: list[NodePool], state: ClusterState) -> bool:
    """Whether the pod alone fits on an offering of a pool without its limits."""
    supply = Supply(pools, _catalog(), frozenset(), state.daemons)
    return bool(pack([pod], supply).launches)


@cache
def _catalog() -> Catalog:
    return sandbox_catalog("us-east-1")


type Promise = Callable[[Evidence], Iterator[str]]

ALWAYS: dict[str, Promise] = {
    "beyond a limit": exceeded_limits,
    "not accounted for": unaccounted,
}
AT_THE_END: dict[str, Promise] = {
    "bought twice": launched_twice,
    "bought for nothing": unused_instances,
    "left pending": waiting_pods,
}


def _evidence(sandbox: Sandbox, spare: Collection[str]) -> Evidence:
    dynamodb, table = client("dynamodb", sandbox.aws_url), table_of(sandbox)
    seen = Journal(tuple(sandbox.journal()))
    ended, closed = _ends(seen)
    bought = _bought(seen, ended, closed)
    records = DynamoRecords(lambda: dynamodb, table)
    stored = DynamoManifests(lambda: dynamodb, table).of(CLUSTER)
    readings = [read_stored(one.body, one.title) for one in stored]
    return Evidence(
        sandbox,
        seen,
        bought,
        {one.id: one for one in DynamoLaunchIntents(lambda: dynamodb, table).of_cluster(CLUSTER)},
        {name for name in bought if records.admission(name) is not None},
        closed,
        [one.meant for reading in readings for one in reading.written],
        spare,
    )


class _Places:
    """The instances of nodes. A later instance may have the name of an earlier one's node."""

    def __init__(self, seen: Journal) -> None:
        self._joins: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for entry in seen.of("node-joined"):
            self._joins[entry["node"]].append((entry["at"], entry["instance"]))

    def of(self, entry: Entry) -> str:
        """Return the instance of the node of an entry, at its time; empty if it is unknown."""
        joins = self._joins.get(entry["node"], [])
        return next((name for at, name in reversed(joins) if at <= entry["at"]), "")


def _ends(seen: Journal) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return when instances ended, and when they were no place for pods any more."""
    places, ending = _Places(seen), {"shutting-down", "terminated", "stopping"}
    states = [e for e in seen.of("instance-state") if e["state"] in ending]
    ended = _first((e["instance"], e["at"]) for e in states)
    taken = [(e["instance"], e["at"]) for e in seen.of("interrupted")]
    cordoned = [(places.of(e), e["at"]) for e in seen.of("node-cordoned")]
    return ended, _first([*ended.items(), *taken, *cordoned])


def _bought(
    seen: Journal, ended: Mapping[str, float], closed: Mapping[str, float]
) -> dict[str, Bought]:
    """Return the instances of fleets."""
    places = _Places(seen)
    node_of = {e["instance"]: e["node"] for e in seen.of("node-joined")}
    used = _first((places.of(e), e["at"]) for e in seen.of("pod-bound") if _is_workload(e))
    return {
        place["instance"]: Bought(
            place["instance"],
            place["instance_type"],
            fleet["tags"].get(POOL_TAG, ""),
            fleet["tags"].get(INTENT_TAG, ""),
            fleet["at"],
            node_of.get(place["instance"], ""),
            used.get(place["instance"], inf),
            closed.get(place["instance"], inf),
            ended.get(place["instance"], inf),
        )
        for fleet in seen.of("fleet")
        for place in fleet["launched"]
    }


def _first(times: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the first time of each name."""
    found: dict[str, float] = {}
    for name, at in times:
        found[name] = min(at, found.get(name, inf))
    return found
