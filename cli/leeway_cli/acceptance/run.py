"""Runs the stages of an acceptance, and cleans up whatever happens."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from leeway import __version__
from leeway.printable import printable

from leeway_cli.acceptance import group
from leeway_cli.acceptance.world import NAME, World
from leeway_cli.errors import CannotBeDoneError

FAMILIES = {
    "al2023": "al2023@latest",
    "bottlerocket": "bottlerocket@latest",
    "al2": "al2@latest",
    "windows2022": "windows2022@latest",
}
"""The AMI families of which a node is launched, with the aliases of their AMIs."""

_WINDOWS = "windows2022"
_LAST_OF_AL2 = 32
"""The last minor version of Kubernetes with AL2 AMIs. Source: EKS user guide, "Guide to EKS AL2 &
AL2-Accelerated AMIs transition features"."""

_WINDOWS_LICENCE = 0.092
"""How much more an instance of the families m with two processors costs with Windows, in USD per
hour. Source: EC2 On-Demand pricing."""

_ALIAS = FAMILIES["al2023"]
"""The AMI of the stages that are about something else than an AMI family."""

FIS = "fis"
_NOTHING = (lambda _: None, lambda _: True)

CLEANED_WITHIN = 600.0
_LAUNCHES_WITHIN = 600.0
_WINDOWS_WITHIN = 1200.0
_GOES_WITHIN = 1500.0
_LOOKS_AFTER_REMOVAL = 6
_EVERY = 2.0
_FAILURES = 5


@dataclass(frozen=True)
class Stage:
    """One thing that a cluster must be able to do: `act`, after which `holds` becomes true within
    so many seconds. `subject` names what its stages share: if one fails, the next are not run.
    `note` tells more about what happened; `skip` is why the stage is not run, empty if it is."""

    name: str
    what: str
    subject: str
    act: Callable[[World], None]
    holds: Callable[[World], bool]
    within: float
    note: Callable[[World], str] = lambda _: ""
    skip: str = ""


@dataclass
class Result:
    """What became of a stage. `seconds` is None if it failed, or was not run because a stage before
    it failed, and if it was `skipped`, which says why."""

    name: str
    what: str
    within: float
    seconds: float | None = None
    problem: str = ""
    note: str = ""
    skipped: str = ""


@dataclass
class Acceptance:
    """The report. `usd` is what the instances cost at list prices, None if a price is unknown."""

    cluster: str
    began: datetime
    results: list[Result] = field(default_factory=list)
    machines: list[dict[str, Any]] = field(default_factory=list)
    usd: float | None = None
    duration: float = 0.0
    version: str = __version__

    @property
    def failed(self) -> list[Result]:
        """The stages that failed, or were not run because another one failed."""
        return [one for one in self.results if one.seconds is None and not one.skipped]

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        return f"leeway acceptance {self.cluster}"

    def as_data(self) -> dict[str, Any]:
        """Render the report for JSON, without ids of the account or of instances."""
        return {
            "cluster": self.cluster,
            "version": self.version,
            "began": self.began.isoformat(timespec="seconds"),
            "seconds": round(self.duration, 1),
            "passed": not self.failed,
            "usd": self.usd,
            "stages": [asdict(one) for one in self.results],
            "machines": self.machines,
        }


HEADROOM, SPOT, GROUP = "headroom", "spot", "group"
SUBJECTS = (GROUP, *FAMILIES, HEADROOM, SPOT)
"""What an acceptance can prove. The group comes first: the disruption budget lets few nodes of a
small cluster go, and Fault Injection Service waits only fifteen minutes."""


def stages(subjects: Sequence[str], skips: Mapping[str, str]) -> tuple[Stage, ...]:
    """Return the stages of subjects. `skips` says of some subjects why they are not run, and with
    the key FIS why nothing can be interrupted."""
    make: dict[str, Callable[[], Iterator[Stage]]] = {
        **{family: partial(_of_family, family) for family in FAMILIES},
        HEADROOM: _of_headroom,
        SPOT: _of_spot,
        GROUP: partial(_of_group, skips.get(FIS, "")),
    }
    found: list[Stage] = []
    for one in subjects:
        if one in skips:
            found.append(Stage(one, "", one, *_NOTHING, 0.0, skip=skips[one]))
        else:
            found += make[one]()
    return tuple(found)


def why_skipped(
    fis_role: str, version: str, *, has_windows_class: bool, gives_windows_addresses: bool
) -> dict[str, str]:
    """Return why some subjects cannot be proven in a cluster of this version of Kubernetes."""
    found: dict[str, str] = {}
    if not fis_role:
        why = "only Fault Injection Service can interrupt an instance: name its role by --fis-role"
        found |= {FIS: why, SPOT: why}
    if int(version.partition(".")[2] or 0) > _LAST_OF_AL2:
        found["al2"] = f"EKS has no AL2 AMIs for Kubernetes {version}"
    if not has_windows_class:
        found[_WINDOWS] = (
            "the table has no EC2NodeClass with a Windows alias, whose role the nodes would get"
        )
    elif not gives_windows_addresses:
        found[_WINDOWS] = (
            "the ConfigMap kube-system/amazon-vpc-cni does not have enable-windows-ipam: true"
        )
    return found


def _of_family(family: str) -> Iterator[Stage]:
    pool = f"{NAME}-{family}"
    yield Stage(
        f"launch {family}",
        f"A pod that fits on no node gets a new {family} node, and runs there.",
        family,
        lambda world: world.start(pool, FAMILIES[family]),
        lambda world: world.runs(pool),
        _WINDOWS_WITHIN if family == _WINDOWS else _LAUNCHES_WITHIN,
    )
    yield Stage(
        f"replace {family}",
        f"The {family} node expires: Leeway launches another one, evicts the pod, and ends the "
        "instance.",
        family,
        lambda world: world.expire(pool),
        lambda world: world.is_replaced(pool),
        _GOES_WITHIN,
    )
    yield _give_back(family)


def _of_headroom() -> Iterator[Stage]:
    pool = f"{NAME}-{HEADROOM}"
    yield Stage(
        "open headroom",
        "The cron window of a Headroom opens: a pause pod runs on a new node.",
        HEADROOM,
        lambda world: world.reserve(pool, _ALIAS),
        lambda world: world.runs(pool),
        _LAUNCHES_WITHIN,
    )
    yield _give_back(HEADROOM)


def _of_spot() -> Iterator[Stage]:
    pool = f"{NAME}-{SPOT}"
    yield Stage(
        f"launch {SPOT}",
        "A pod that fits on no node gets a new Spot node, and runs there.",
        SPOT,
        lambda world: world.start(pool, _ALIAS, "spot"),
        lambda world: world.runs(pool),
        _LAUNCHES_WITHIN,
    )
    yield Stage(
        f"interrupt {SPOT}",
        "Fault Injection Service interrupts the Spot node: Leeway launches another one, and evicts "
        "the pod before EC2 reclaims the instance.",
        SPOT,
        lambda world: _interrupt(world, pool),
        lambda world: _is_reclaimed(world, pool),
        _LAUNCHES_WITHIN,
    )
    yield _give_back(SPOT)


def _interrupt(world: World, pool: str) -> None:
    world.expired[pool] = world.alive(pool)
    world.interrupt(pool, world.of_pools(pool))


def _is_reclaimed(world: World, pool: str) -> bool:
    world.check_experiment()
    return world.is_replaced(pool)


def _of_group(no_fis: str) -> Iterator[Stage]:
    yield Stage(
        f"admit {GROUP}",
        "An Auto Scaling group launches a Spot instance: its launch hook waits until Leeway has "
        "found its node Ready, and has answered CONTINUE.",
        GROUP,
        group.create,
        group.is_in_service,
        _LAUNCHES_WITHIN,
        group.how_long_it_waited,
    )
    yield Stage(
        f"rebalance {GROUP}",
        "EC2 recommends a rebalance: Leeway launches a successor in the group by LaunchInstances, "
        "evicts the pod when its node is Ready, and ends the first instance.",
        GROUP,
        group.recommend,
        group.is_rebalanced,
        _GOES_WITHIN,
        group.how_long_it_waited,
        skip=no_fis,
    )
    yield Stage(
        f"remove {GROUP}",
        "The group is deleted with its instance and its launch template.",
        GROUP,
        lambda world: world.stop(group.GROUP),
        group.is_removed,
        _LAUNCHES_WITHIN,
    )


def _give_back(subject: str) -> Stage:
    pool = f"{NAME}-{subject}"
    return Stage(
        f"give back {subject}",
        f"The {subject} node is empty: Leeway cordons it and ends its instance.",
        subject,
        lambda world: world.stop(pool),
        lambda world: world.is_gone(pool),
        _GOES_WITHIN,
    )


def run_acceptance(
    world: World,
    some: Sequence[Stage],
    prices: Mapping[str, float],
    say: Callable[[str], None],
) -> Acceptance:
    """Run stages after one another, and remove what they created, also if they are interrupted.

    Raises:
        CannotBeDoneError: something could not be removed.
        KeyboardInterrupt: a user interrupts, or SIGTERM.
    """
    report, start = Acceptance(world.cluster, datetime.now(UTC)), time.monotonic()
    with _terminable():
        say("removing what an earlier run has left")
        clean(world)
        try:
            for stage in some:
                report.results.append(_run(world, stage, report, say))
        finally:
            say("removing what this run has created")
            clean(world)
    report.duration = time.monotonic() - start
    _count(report, world, prices)
    return report


def clean(world: World) -> None:
    """Remove everything that an acceptance creates.

    A run of Leeway that read the pods before they were deleted may launch a node afterwards, so
    that nothing may come for some seconds after something was removed.

    Raises:
        CannotBeDoneError: some of it is left.
    """
    empty, needed = 0, 1

    def stays_empty() -> bool:
        nonlocal empty, needed
        if all([world.remove(), group.is_removed(world)]):
            empty += 1
        else:
            empty, needed = 0, _LOOKS_AFTER_REMOVAL
        return empty >= needed

    if not _wait(world, stays_empty, CLEANED_WITHIN):
        raise CannotBeDoneError(
            f"Not everything was removed from cluster {world.cluster}: some is left after "
            f"{CLEANED_WITHIN:.0f} s. Run `leeway acceptance {world.cluster} --clean`."
        )


def _run(world: World, stage: Stage, report: Acceptance, say: Callable[[str], None]) -> Result:
    result = Result(stage.name, stage.what, stage.within, skipped=stage.skip)
    if stage.skip:
        say(f"{stage.name}: skipped: {stage.skip}")
        return result
    if any(one.name.endswith(f" {stage.subject}") for one in report.failed):
        result.problem = "not run, because the stage before it failed"
        return result
    say(f"{stage.name}: {stage.what}")
    began = time.monotonic()
    try:
        stage.act(world)
        if _wait(world, lambda: stage.holds(world), stage.within):
            result.seconds = round(time.monotonic() - began, 1)
            result.note = stage.note(world)
        else:
            result.problem = f"it has not happened within {stage.within:.0f} s"
    except Exception as error:  # noqa: BLE001 - the other stages are worth running
        result.problem = printable(f"{type(error).__name__}: {error}")[:300]
    say(f"{stage.name}: {result.problem or f'{result.seconds} s. {result.note}'.rstrip()}")
    return result


def _wait(world: World, holds: Callable[[], bool], within: float) -> bool:
    """Look until something holds. A look may fail a few times, as calls over a network do."""
    until, failures = time.monotonic() + within, 0
    while True:
        try:
            if holds():
                return True
            failures = 0
        except Exception:
            failures += 1
            if failures > _FAILURES:
                raise
        if time.monotonic() > until:
            return False
        world.sleep(_EVERY)


def _count(report: Acceptance, world: World, prices: Mapping[str, float]) -> None:
    """Add the instances with their list prices: EC2 bills each second of an instance, at least a
    minute."""
    total: float | None = 0.0
    for one in world.machines.values():
        seconds = max(60.0, one.last_seen - one.first_seen)
        price = prices.get(one.instance_type)
        if price is not None and one.windows:
            price += _WINDOWS_LICENCE
        cost = None if price is None else price * seconds / 3600
        total = None if cost is None or total is None else total + cost
        report.machines.append(
            {
                "type": one.instance_type,
                "zone": one.zone,
                "capacity": one.capacity_type,
                "system": "windows" if one.windows else "linux",
                "seconds": round(seconds),
                "usdPerHour": price,
            }
        )
    report.usd = None if total is None else round(total, 4)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does, so that what was created is removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
