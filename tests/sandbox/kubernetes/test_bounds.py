"""The memory of a cluster is bounded, so that it can run for days.

These tests read the memory of the process, because no answer of the API shows it.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import msgspec
from leeway_sandbox.control import Journal
from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.authentication import User
from leeway_sandbox.kubernetes.calls import Call, target_of
from leeway_sandbox.kubernetes.cluster import Cluster, Events, Settings
from leeway_sandbox.kubernetes.controllers.bootstrap import Controllers, bootstrap
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.eviction import Evictions
from leeway_sandbox.kubernetes.store import Store
from leeway_sandbox.kubernetes.writing import create

from tests.sandbox.kubernetes.live import BUDGETS, DEPLOYMENTS, PODS, bare_pod, budget, deployment

_DAEMONS = "/apis/apps/v1/namespaces/default/daemonsets"
_AT_ONCE = Settings(
    pod_start=0,
    pod_end=0,
    node_join=0,
    node_ready=0,
    node_removal=0,
    kept_events=1,
)


def made(cluster: Cluster, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create an object as the API does."""
    target = target_of(path)
    assert target is not None
    user, raw = User("test", ()), msgspec.json.encode(body)
    call = Call("create", target, {}, user, "test/1", "", "application/json", raw)
    return create(cluster, call).object


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop of the cluster until a condition is true."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def live_once(cluster: Cluster, controllers: Controllers, number: int) -> None:
    """Create a node and a workload, use them, and delete them."""
    store, instance, name = cluster.store, f"i-{number:017x}", f"node-{number}"
    node = {"metadata": {"name": name}, "status": {"capacity": {"cpu": "4", "pods": "20"}}}
    controllers.instances.report(instance, "running", node, 0)
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": f"app-{number}"}},
    }
    owner = made(
        cluster,
        DEPLOYMENTS,
        deployment(f"app-{number}", 2, spec={"topologySpreadConstraints": [spread]}),
    )
    covering = made(cluster, BUDGETS, budget(f"app-{number}", f"app-{number}", maxUnavailable=1))
    homeless = made(cluster, PODS, bare_pod(f"homeless-{number}", nodeSelector={"no": "where"}))

    def running() -> list[dict[str, Any]]:
        pods = [pod for pod in store.on_node(name) if pod["status"].get("phase") == "Running"]
        return [pod for pod in pods if pod["metadata"]["name"].startswith("app")]

    await until(lambda: len(running()) == 2)
    await until(lambda: disruptions_allowed(store, covering))
    victim = running()[0]["metadata"]["name"]
    eviction = {"metadata": {"name": victim}}
    await Evictions(cluster, controllers.disruption).evict("default", victim, eviction, hold=0)
    await until(lambda: len(running()) == 2 and store.get(registry.POD, "default", victim) is None)
    delete(cluster, registry.DEPLOYMENT, owner)
    delete(cluster, registry.BUDGET, covering)
    delete(cluster, registry.POD, homeless)
    controllers.instances.report(instance, "terminated", None, None)
    await until(lambda: not store.count(registry.NODE) and not store.count(registry.POD))


def disruptions_allowed(store: Store, obj: dict[str, Any]) -> int:
    """Return the allowed disruptions of a budget."""
    found = store.read(registry.BUDGET, "default", obj["metadata"]["name"])
    return int(found["status"]["disruptionsAllowed"])


def held(root: object) -> int:
    """Count the entries of all containers that can be reached from an object of the cluster."""
    count, seen, waiting = 0, set[int](), [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        found = list(_parts(one))
        if isinstance(one, Mapping | Set | list | tuple | deque):
            count += len(one)
        waiting += found
    return count


def _parts(one: object) -> Iterator[object]:
    if isinstance(one, Mapping):
        yield from one.values()
    elif isinstance(one, Set | list | tuple | deque):
        yield from one
    elif isinstance(one, types.MethodType):
        yield one.__self__
    elif isinstance(one, types.FunctionType):
        yield from (cell.cell_contents for cell in one.__closure__ or ())
    elif type(one).__module__.startswith("leeway_sandbox."):
        yield from vars(one).values() if hasattr(one, "__dict__") else ()
        slots = (name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()))
        yield from (getattr(one, name) for name in slots if hasattr(one, name))


def test_deleted_objects_leave_nothing_in_memory() -> None:
    async def measure() -> tuple[int, int]:
        cluster = Cluster(_AT_ONCE, Store(history=1))
        cluster.journal = Journal(longest=1)
        controllers = bootstrap(cluster)
        template = deployment("agent", 1)["spec"]["template"]
        spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
        made(cluster, _DAEMONS, {"metadata": {"name": "agent"}, "spec": spec})
        for number in range(8):
            await live_once(cluster, controllers, number)
        before = held(cluster)
        for number in range(8, 48):
            await live_once(cluster, controllers, number)
        return before, held(cluster)

    before, after = asyncio.run(measure())

    # One leaked entry for each of the forty would exceed this bound.
    assert after < before + 30


def test_the_watch_history_and_the_journal_keep_only_the_newest_entries() -> None:
    store, journal = Store(history=100), Journal(longest=50)
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {}, "status": {}}
    pod = store.create(registry.POD, {**pod, "status": {"conditions": []}})
    for number in range(1000):
        pod = store.amend(registry.POD, pod, status={"message": str(number)}) or pod
        journal.add("changed", number=number)

    assert len(list(store.since(store.oldest))) == 100
    assert len(journal) <= 50


def test_old_events_are_deleted_above_the_limit() -> None:
    store = Store()
    events = Events(store, most=20)
    node = store.create(registry.NODE, {"metadata": {"name": "n"}, "spec": {}})
    for number in range(100):
        events.write(registry.NODE, node, "Seen", str(number), "test")

    kept = sorted(int(one["message"]) for one in store.every(registry.EVENT))
    assert kept == list(range(80, 100))
