"""A cluster with Karpenter in memory: its rules for NodeClaims, and who would launch now."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from leeway.instances.facts import OWNER_TAG, POOL_TAG, InstanceFacts, owner_of
from leeway.manifests.in_cluster import Lease, running_karpenter
from leeway.switched import Buyer, Switch
from leeway_cli.switch.claims import claim_name
from leeway_cli.switch.plan import (
    KARPENTERS_CLASS_TAG,
    KARPENTERS_POOL_TAG,
    LAUNCH_TAG,
    Claim,
    Deployment,
    Instance,
    Seen,
)
from leeway_cli.switch.run import carry_out

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
CLUSTER = "prod"
KARPENTERS = {
    KARPENTERS_POOL_TAG: "default",
    KARPENTERS_CLASS_TAG: "default",
    LAUNCH_TAG: CLUSTER,
    "kubernetes.io/cluster/prod": "owned",
}
LEEWAYS = {
    OWNER_TAG: "leeway",
    POOL_TAG: "default",
    LAUNCH_TAG: CLUSTER,
    "kubernetes.io/cluster/prod": "owned",
}


class KilledError(Exception):
    """The command was killed."""


@dataclass
class Machine:
    """An instance with its tags, and whether its node has joined."""

    id: str
    tags: dict[str, str]
    joined: bool = True

    def seen(self) -> Instance:
        facts = InstanceFacts(
            instance=self.id,
            cluster=CLUSTER,
            private_dns_name=f"node-{self.id}",
            zone="us-east-1a",
            instance_type="m5.large",
            capacity_type="spot",
            owner=owner_of(self.tags),
            joined=self.joined,
            from_fleet=True,
        )
        return Instance(facts, dict(self.tags), NOON - timedelta(hours=1))


@dataclass
class Cluster:
    """The World Protocol. `writes_left`: the command is killed at the write after so many, before
    it is made (`torn` False) or after. `moves` are the sizes that somebody else gives Karpenter's
    Deployment, one after each write and each wait; None leaves it. `registered` are the NodeClaims
    that Karpenter has taken. `drained` are the nodes that were drained, `ended` the instances that
    Karpenter has ended, `launched` those that it has launched."""

    now: datetime = NOON
    deployment: Deployment = field(
        default_factory=lambda: Deployment("kube-system", "karpenter", 2, 2)
    )
    machines: dict[str, Machine] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)
    unfit: dict[str, str] = field(default_factory=dict)
    switch: Switch | None = None
    renewed: datetime = NOON
    drained: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    writes_left: int | None = None
    torn: bool = False
    moves: list[int | None] = field(default_factory=list)
    others: Callable[[], None] = lambda: None
    settings: dict[str, object] = field(default_factory=dict)

    def add(self, name: str, tags: dict[str, str], claimed: bool = False) -> None:
        """Add an instance with a node, and its NodeClaim."""
        self.machines[name] = Machine(name, dict(tags))
        if claimed:
            self.claims[f"claim-{name}"] = name
            self.registered.add(f"claim-{name}")

    @property
    def karpenter_runs(self) -> bool:
        return self.deployment.replicas > 0

    @property
    def leeway_may_launch(self) -> bool:
        """What provision_nodes asks right before a launch."""
        named = self.switch is not None and self.switch.buyer is Buyer.KARPENTER
        return not named and self._alive() is None

    def _alive(self) -> object:
        leases = [Lease("kube-system", self.renewed, timedelta(seconds=15))]
        return running_karpenter(CLUSTER, leases, self.now)

    def acts(self) -> None:
        """What Karpenter does at any moment while it runs."""
        if not self.karpenter_runs:
            return
        self.renewed = self.now
        named = {*self.claims.values()}
        for name, machine in [*self.machines.items()]:
            listed = {KARPENTERS_POOL_TAG, KARPENTERS_CLASS_TAG, LAUNCH_TAG} <= machine.tags.keys()
            if listed and name not in named:
                self.ended.append(name)
                del self.machines[name]
        for claim, name in self.claims.items():
            self.registered.add(claim)
            if not name:
                self.launched.append(claim)

    def interfere(self) -> None:
        """Let somebody else scale Karpenter's Deployment. docs/switch.md asks people not to start
        it while a NodeClaim has no status."""
        size = self.moves.pop(0) if self.moves else None
        if size is not None and not (size and not all(self.claims.values())):
            self.deployment = replace(self.deployment, replicas=size)

    def sleep(self, seconds: float) -> None:
        """Time passes, and Karpenter acts."""
        self.now += timedelta(seconds=seconds)
        self.interfere()
        self.deployment = replace(self.deployment, running=self.deployment.replicas)
        self.acts()
        self.others()
        self._check()

    def _check(self) -> None:
        assert not (self.karpenter_runs and self.leeway_may_launch), "two may launch"

    def _write(self, change: Callable[[], object]) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                if self.torn:
                    change()
                raise KilledError
        change()
        self._check()
        self.interfere()
        self.acts()
        self._check()

    def read(self) -> Seen:
        self.now += timedelta(milliseconds=100)
        instances = tuple(one.seen() for one in self.machines.values())
        joined = {name for name, one in self.machines.items() if one.joined}
        found = Seen(
            cluster=CLUSTER,
            now=self.now,
            deployments=(self.deployment,),
            pools={"default": "default"},
            claims=tuple(
                Claim(
                    claim,
                    "default",
                    name,
                    name in joined,
                    claim in self.deleting,
                    taken=claim in self.registered,
                )
                for claim, name in self.claims.items()
            ),
            nodes={name: f"node-{name}" for name in joined},
            instances=instances,
            recorded=frozenset(self.recorded),
            unfit=self.unfit,
            switch=self.switch,
            alive=running_karpenter(
                CLUSTER, [Lease("kube-system", self.renewed, timedelta(seconds=15))], self.now
            ),
        )
        return replace(found, **self.settings)  # type: ignore[arg-type]

    def write_switch(self, switch: Switch) -> None:
        self._write(lambda: setattr(self, "switch", switch))

    def scale(self, deployment: Deployment, replicas: int) -> None:
        self._write(lambda: setattr(self, "deployment", replace(deployment, replicas=replicas)))

    def record_launch(self, instance: Instance, now: datetime) -> None:
        self._write(lambda: self.recorded.add(instance.id))

    def tag(self, instances: tuple[str, ...], tags: dict[str, str]) -> None:
        for one in instances:
            self._write(partial(self.machines[one].tags.update, tags))

    def untag(self, instances: tuple[str, ...], tags: dict[str, str]) -> None:
        for one in instances:
            for key in tags:
                self._write(partial(self.machines[one].tags.pop, key, None))

    def write_claim(self, instance: Instance, now: datetime) -> None:
        if self.karpenter_runs:
            assert self._alive(), "Karpenter would launch for a NodeClaim without a status"
            return
        name = claim_name("default", instance.id)
        self._write(lambda: self.claims.setdefault(name, ""))
        self._write(lambda: self.claims.update({name: instance.id}))

    def remove_claim(self, name: str) -> None:
        if name not in self.registered:
            self._write(partial(self.claims.pop, name))

    def drain(self, node: str) -> None:
        assert self.karpenter_runs, "nobody launches for the pods"
        name = node.removeprefix("node-")

        def ends() -> None:
            del self.machines[name]
            self.drained.append(node)

        self._write(ends)

    def switched(self, to: Buyer, *, kill: int | None = None, torn: bool = False) -> bool:
        """Run the command; return whether it came to its end."""
        self.writes_left, self.torn = kill, torn
        try:
            carry_out(self, to, lambda _: None, self.sleep)
        except KilledError:
            return False
        finally:
            self.writes_left = None
        return True


def of_karpenter(instances: int = 2) -> Cluster:
    """A cluster whose nodes Karpenter has launched."""
    found = Cluster()
    for number in range(instances):
        found.add(f"i-{number}", KARPENTERS, claimed=True)
    return found
