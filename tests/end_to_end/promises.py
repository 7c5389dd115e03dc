"""The promises of a scale-up, checked from outside of Leeway.

The checks read the sandbox's journals, the table, and the live state of the cluster and AWS:

1. No pod that an offering of a pool holds is pending, unless an Event names a limit, a brake or an
   error of EC2. Every pending pod has an Event.
2. Nothing is bought twice: at each launch no more nodes were new than pods waited, and every
   instance got a pod.
3. Limits of pools and spec.launches.atMost held at every moment. An instance counts from its launch
   until EC2 shuts it down or stops it, whatever became of its Node.
4. Every instance has one intent, an admission, and a Node or a reason. Every intent has an end.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf

from leeway.admission.record import ADMISSION
from leeway.aws.table import DynamoTable
from leeway.clock import SystemClock
from leeway.instances.facts import INTENT_TAG, POOL_TAG
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.launch.intent import INTENT, LaunchIntent
from leeway.launch.node_settings import settings_of
from leeway.manifests.cluster import Cluster
from leeway.manifests.configuration import StoredManifests
from leeway.manifests.reading import read_stored
from leeway.provisioning.brakes import WINDOW
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.selection.sources import sandbox_catalog
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from lightkube.resources.core_v1 import Event

from tests.end_to_end.environment import PATIENCE, Entry, Journal, kube_client
from tests.end_to_end.provisioning import CLUSTER, simulated_time, table_of

NOTHING_FITS = {
    "DeviceClaimsNotPlanned",
    "NoNodePoolMatches",
    "RequestTooLarge",
    "VolumeClaimNotMet",
}
"""The reasons that say that no offering of a pool holds a pod."""


LEAD = 120.0
"""Seconds before a window within which tests have nodes launched for it."""

CLOCK_SLACK = 1.0
"""Seconds by which the journal may have a pod later than the API server."""


@dataclass(frozen=True)
class Bought:
    """A launched instance, its processors, and its Node, empty without one. Times are epoch
    seconds: the launch, the same with the time that tests let pass, its first pod, the end as a
    place for pods, and its own end."""

    instance: str
    pool: str
    intent: str
    at: float
    simulated_at: float
    cpus: int = 2
    node: str = ""
    used: float = inf
    until: float = inf
    ended: float = inf


@dataclass(frozen=True)
class _Pod:
    """When a pod was created, bound to its node, and ended, in epoch seconds; its instance, and its
    workload, such as "Deployment/default/web"."""

    created: float
    bound: float
    ended: float
    instance: str
    workload: str


@dataclass(frozen=True)
class Waiting:
    """A pending pod, the codes of Leeway's Events about it, and whether an offering holds it."""

    pod: str
    codes: frozenset[str]
    fits: bool


@dataclass(frozen=True)
class Evidence:
    """What the sandbox shows.

    `closed` are all instances that EC2 interrupted or ended, or whose Node was cordoned, with the
    time. `spare` are pools whose nodes may stay empty, `ahead` workloads for whose pods nodes are
    launched before a window. `cap` is spec.launches.atMost.
    """

    seen: Journal
    bought: Mapping[str, Bought]
    intents: Mapping[str, LaunchIntent] = field(default_factory=dict)
    admitted: Collection[str] = ()
    closed: Mapping[str, float] = field(default_factory=dict)
    waiting: Collection[Waiting] = ()
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    cap: int | None = None
    spare: Collection[str] = ()
    ahead: Collection[str] = ()


def check_accounts(sandbox: Sandbox) -> None:
    """Check the promises about limits, and the accounts of instances: those that hold even if
    tests have deleted the pods."""
    _check(sandbox, ALWAYS, (), (), PATIENCE)


def check_promises(
    sandbox: Sandbox,
    *,
    spare: Collection[str] = (),
    ahead: Collection[str] = (),
    timeout: float = PATIENCE,
) -> None:
    """Check all promises after a scale-up. The nodes of the pools `spare` may stay empty; nodes are
    launched before a window for the pods of the workloads `ahead`. `timeout` is in seconds: nodes
    join, and the buyer tells about pods."""
    _check(sandbox, {**ALWAYS, **AT_THE_END}, spare, ahead, timeout)


def _check(
    sandbox: Sandbox,
    promises: Mapping[str, "Promise"],
    spare: Collection[str],
    ahead: Collection[str],
    timeout: float,
) -> None:
    until = time.monotonic() + timeout
    while found := broken_promises(_evidence(sandbox, spare, ahead), promises):
        assert time.monotonic() < until, f"{len(found)} broken promises:\n" + "\n".join(found)
        time.sleep(0.5)


def broken_promises(evidence: Evidence, promises: Mapping[str, "Promise"]) -> list[str]:
    """Return every broken promise, one line each."""
    return [
        f"{promise}: {what}" for promise, broken in promises.items() for what in broken(evidence)
    ]


def launched_twice(evidence: Evidence) -> Iterator[str]:
    """Yield the launches after which more new nodes were there than pods that waited for one. Each
    new node gets at least one of these pods. A pod on a node that is cordoned or taken later counts
    as waiting: its replacement may come first."""
    pods = list(_pods(evidence.seen))
    own = [one for one in evidence.bought.values() if one.pool not in evidence.spare]
    for at in sorted({one.at for one in own}):
        new = [one for one in own if one.at <= at < min(one.until, one.used)]
        waiting = sum(
            pod.created <= at + (LEAD if pod.workload in evidence.ahead else CLOCK_SLACK)
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
            yield _Pod(*times, places.of(place) if place else "", str(entry["owner"]))


def _is_workload(entry: Entry) -> bool:
    return not str(entry["owner"]).startswith(("DaemonSet/", "Node/"))


def exceeded_limits(evidence: Evidence) -> Iterator[str]:
    """Yield the moments at which a pool had more than its limits, or too much was launched."""
    for pool, limits in evidence.limits.items():
        own = [one for one in evidence.bought.values() if one.pool == pool]
        for moment in own:
            lived = [one for one in own if one.at <= moment.at < one.ended]
            amounts = {"nodes": len(lived), "cpu": 1000 * sum(one.cpus for one in lived)}
            for name in limits.keys() & amounts:
                if amounts[name] > limits[name]:
                    yield f"pool {pool} had {name} {amounts[name]} of {limits[name]}"
    times = sorted(one.simulated_at for one in evidence.bought.values())
    for end in times if evidence.cap is not None else ():
        count = sum(end - WINDOW.total_seconds() < at <= end for at in times)
        if count > (evidence.cap or 0):
            yield f"{count} instances were launched in ten minutes, {evidence.cap} are the maximum"


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
    for one in evidence.waiting:
        if not one.codes:
            yield f"{one.pod} is pending without an Event"
        elif one.fits and one.codes <= NOTHING_FITS:
            yield f"{one.pod} is pending with {', '.join(one.codes)}, and an offering holds it"


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


def _evidence(sandbox: Sandbox, spare: Collection[str], ahead: Collection[str]) -> Evidence:
    dynamodb, table = client("dynamodb", sandbox.aws_url), table_of(sandbox)
    seen = Journal(tuple(sandbox.journal()))
    ended, closed = _ends(seen)
    bought = _bought(sandbox, seen, ended, closed)
    records = DynamoTable(lambda: dynamodb, table)
    stored = StoredManifests(records).of(CLUSTER)
    readings = [read_stored(one.body, one.title) for one in stored]
    manifests = [one.manifest for reading in readings for one in reading.written]
    pools = [one.template.pool for one in settings_of(manifests)]
    return Evidence(
        seen,
        bought,
        {one.id: one for one in records.list(INTENT, cluster=CLUSTER)},
        {one for one in bought if records.get(ADMISSION, cluster=CLUSTER, instance=one)},
        closed,
        list(_waiting(sandbox, pools)),
        {pool.name: pool.limits for pool in pools if pool.limits},
        next((one.spec.launches.at_most for one in manifests if isinstance(one, Cluster)), None),
        spare,
        ahead,
    )


def _waiting(sandbox: Sandbox, pools: Collection[NodePool]) -> Iterator[Waiting]:
    with closing(kubeconfig_connection(sandbox.kubeconfig, None)) as connection:
        state = KubernetesClusterStates(lambda _: connection, SystemClock()).read(CLUSTER)
    told = _told(sandbox) if state.waiting else {}
    for pod in (waiting.pod for waiting in state.waiting):
        # Alone, and without the limits of the pools.
        without = [replace(pool, limits=None) for pool in pools]
        supply = Supply(without, _catalog(), frozenset(), state.daemons)
        fits = bool(pack([pod], supply).launches)
        yield Waiting(pod.name, frozenset(told.get(pod.name, ())), fits)


def _told(sandbox: Sandbox) -> dict[str, set[str]]:
    """Return the codes of Leeway's Events about each pod, by `namespace/name`."""
    codes: dict[str, set[str]] = defaultdict(set)
    with kube_client(sandbox) as kube:
        for event in kube.list(Event, namespace="*"):
            about = event.involvedObject
            if event.reportingComponent == "leeway" and about.kind == "Pod":
                codes[f"{about.namespace}/{about.name}"].add(str(event.reason))
    return codes


@cache
def _catalog() -> Catalog:
    return sandbox_catalog("us-east-1")


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
    sandbox: Sandbox, seen: Journal, ended: Mapping[str, float], closed: Mapping[str, float]
) -> dict[str, Bought]:
    """Return the instances of fleets."""
    places = _Places(seen)
    node_of = {e["instance"]: e["node"] for e in seen.of("node-joined")}
    used = _first((places.of(e), e["at"]) for e in seen.of("pod-bound") if _is_workload(e))
    return {
        place["instance"]: Bought(
            place["instance"],
            fleet["tags"].get(POOL_TAG, ""),
            fleet["tags"].get(INTENT_TAG, ""),
            fleet["at"],
            simulated_time(sandbox, fleet["at"]),
            _processors(sandbox.aws_url, place["instance_type"]),
            node_of.get(place["instance"], ""),
            used.get(place["instance"], inf),
            closed.get(place["instance"], inf),
            ended.get(place["instance"], inf),
        )
        for fleet in seen.of("fleet")
        for place in fleet["launched"]
    }


@cache
def _processors(aws_url: str, instance_type: str) -> int:
    found = client("ec2", aws_url).describe_instance_types(InstanceTypes=[instance_type])
    return int(found["InstanceTypes"][0]["VCpuInfo"]["DefaultVCpus"])


def _first(times: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the first time of each name."""
    found: dict[str, float] = {}
    for name, at in times:
        found[name] = min(at, found.get(name, inf))
    return found
