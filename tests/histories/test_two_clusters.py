"""Two clusters of one stack: what people of one may write changes nothing in the other.

Each operator writes any item with any attributes that a policy in docs/ allows for the own cluster,
copies of the records of the other one among them; tenants of `blue` create pods. The functions run
for both clusters. Beside that, they run without the operator and the tenants of `blue`: all that
they do for `prod` must be the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from leeway.launch.intent import INTENT, INTENT_BY_HAND
from leeway.manifests.configuration import Configuration, StoredManifests
from leeway.notices.parse import EventOrigin
from leeway.policy.rules import ClusterPolicy
from leeway.reconciliation.find_lost_events import LostEventSearch, ObservedRegion
from leeway.reconciliation.left_launches import LeftLaunches
from leeway.retirement.record import RETIREMENT
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import Pod
from leeway.table import OPEN, Item
from leeway_cli.selection.sources import sandbox_catalog

from tests.aws.stored import manifest
from tests.fakes.functions import Starts
from tests.interruption.receiving import Receiver, warning
from tests.launch.launching import World, order
from tests.launch.pools import pods
from tests.reconciliation.account import Account
from tests.reconciliation.test_left_launches import MINUTE, RUNS, WRITTEN
from tests.retirement.retirements import interrupted
from tests.template.people import KINDS, OWN, POLICIES, allows

OTHER = "prod"
FORGED = WRITTEN.model_copy(update={"cluster": OWN})
OF_OWN = replace(
    RUNS, facts=RUNS.facts.model_copy(update={"cluster": OWN, "instance": "i-0b1ue000"})
)


class Stack:
    """The functions of a stack with two clusters, on one table."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog, self.world, self.of_own = catalog, World(), World(OWN)
        self.waiting: list[Pod] = []
        self.of_own.fleets.first = 1000  # EC2 gives no id twice
        self.table = self.world.table
        self.of_own.deps = replace(self.of_own.deps, table=self.table)
        self.starts, self.receiver, self.account = Starts(), Receiver(), Account()
        self.receiver.table = self.table
        self.left = LeftLaunches(
            self.table, self.starts, Starts(), self.world.templates, self.world
        )
        origin = EventOrigin("123456789012", "us-east-1")
        self.search = LostEventSearch(self.table, self.account, self.account, origin, self.world)
        StoredManifests(self.table).write(OTHER, manifest(spec={"dryRun": True}), 0)
        record = interrupted()
        self.table.put(RETIREMENT, record.model_copy(update={"version": 1}))
        self.table.put(INTENT, WRITTEN)
        self.world.fleets.running = {one.instance: one for one in WRITTEN.instances}
        self.world.fleets.intents = dict.fromkeys(self.world.fleets.running, WRITTEN.id)

    def minute(self, receives: bool, launches: bool) -> list[Any]:
        """What the functions do for the other cluster in a minute."""
        self.world.time += MINUTE
        reports: Any = SimpleNamespace(manifest_problem=lambda *_: None)
        policies = Configuration(StoredManifests(self.table), self.world, reports)
        done: list[Any] = [policies.policy_of(OTHER)]
        if receives:
            done.append(self.receiver.receive(warning("2026-11-20T09:45:00Z")).instances)
        for cluster, one in ((OWN, OF_OWN), (OTHER, RUNS)):
            found = self.left.check_instances(cluster, [one])
            lost = self.search.search(cluster, ClusterPolicy(), ObservedRegion([one]))
            done += [found, lost.findings] if cluster == OTHER else []
        self.of_own.time = self.world.time
        of_tenants = order(self.catalog, waiting=self.waiting)
        self.of_own.launch_nodes.launch(replace(of_tenants, cluster=OWN))
        self.waiting = []
        if launches:
            waiting = pods(1, cpu=90_000)
            done.append(self.world.launch_nodes.launch(order(self.catalog, waiting=waiting)))
        started = [one for one in self.starts.started if one[1] == OTHER]
        return [*done, started, self.receiver.started]

    def stored(self) -> dict[Any, str | bytes | None]:
        """The items that belong to the other cluster, or to none."""
        items = self.table.items.items()
        return {key: one.body for key, one in items if OWN not in key[0].split("#")}


class People(RuleBasedStateMachine):
    """The operators of both clusters, the tenants of one, and the minutes of the functions."""

    catalog: Catalog
    is_allowed: Callable[[str, str, dict[str, Any], str], bool] = staticmethod(allows)

    def __init__(self) -> None:
        super().__init__()
        self.alone, self.attacked = Stack(self.catalog), Stack(self.catalog)

    @rule(
        kind=st.sampled_from(sorted(KINDS)),
        cluster=st.sampled_from([OWN, OTHER, f"{OWN}#{OTHER}", f"{OTHER}#{OWN}", f"{OWN}2"]),
        copied=st.integers(0, 20),
        attributes=st.sampled_from(
            [{}, {"cluster": OTHER}, *({"open": key} for key in OPEN.keys(OTHER))]
        ),
        translated=st.booleans(),
        writer=st.sampled_from([OWN, OWN, OTHER]),
    )
    def write(
        self,
        kind: str,
        cluster: str,
        copied: int,
        attributes: dict[str, str],
        translated: bool,
        writer: str,
    ) -> None:
        candidates = list(self._candidates())
        one = candidates[copied % len(candidates)]
        body = one.body.decode(errors="replace") if isinstance(one.body, bytes) else one.body or ""
        body = body.replace(f'"{OTHER}"', f'"{OWN}"') if translated else body
        self._put(Item((kind.format(cluster), one.key[1]), body, 1, None, attributes), writer)

    @rule(count=st.integers(1, 3), name=st.sampled_from(["web", "more"]), cpu=st.integers(1, 400))
    def create_pods(self, count: int, name: str, cpu: int) -> None:
        """Pods of tenants, with the names of pods of the other cluster among them."""
        self.attacked.waiting += pods(count, cpu=cpu * 1000, name=name)

    @rule(copied=st.integers(0, 20), forged=st.integers(0, 20))
    def launch_by_hand(self, copied: int, forged: int) -> None:
        """A launch that names an instance of the other cluster, or has a request of it."""
        requests = [None, *self.attacked.world.fleets.requests]
        request = requests[copied % len(requests)]
        named = FORGED.model_copy(
            update={"request": request, "id": ["intent-1", "own"][forged % 2]}
        )
        self._put(INTENT_BY_HAND.write(named, {}, self.attacked.world.time), OWN)

    @rule(receives=st.booleans(), launches=st.booleans())
    def minute(self, receives: bool, launches: bool) -> None:
        done = [one.minute(receives, launches) for one in (self.alone, self.attacked)]
        assert done[1] == done[0]
        assert self.attacked.stored() == self.alone.stored()
        of_other = self.attacked.world.fleets.requests
        assert not [one for one in self.attacked.of_own.fleets.requests if one in of_other]

    def _candidates(self) -> Iterator[Item]:
        yield from self.attacked.table.items.values()
        yield INTENT_BY_HAND.write(FORGED, {}, self.attacked.world.time)

    def _put(self, item: Item, writer: str) -> None:
        written = {"pk": item.key[0], "sk": item.key[1], "record": item.body, **item.indexed}
        asked = {"Item": {name: {"S": value} for name, value in written.items()}}
        if any(self.is_allowed(policy, "PutItem", asked, writer) for policy in POLICIES):
            self.attacked.table.items[item.key] = item
            if writer == OTHER:
                self.alone.table.items[item.key] = item


def run(machine: type[People], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,  # a new history must not fail in somebody else's change
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def catalog() -> None:
    People.catalog = sandbox_catalog("us-east-1")


def test_whatever_people_write_nothing_changes_in_the_other_cluster() -> None:
    run(People, 20)


def test_an_operator_whom_no_policy_limits_changes_the_other_cluster() -> None:
    class Unlimited(People):
        is_allowed = staticmethod(lambda *_: True)

    with pytest.raises(AssertionError):
        run(Unlimited, 10)
