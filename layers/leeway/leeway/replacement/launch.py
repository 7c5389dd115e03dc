"""How a retirement has its group launch a successor by name, and be as large as before at its end.

LaunchInstances makes the group want more, and the drained instance's end with a decrement makes it
want as much less. Both name what they are about, so that others may change the group meanwhile.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from leeway.execution.retrying import API_ERRORS
from leeway.instances.groups import GroupFacts
from leeway.policy.rules import UNAVAILABLE_FOR
from leeway.ports.aws import CloudRefused, Groups, LaunchError
from leeway.ports.table import Offering, UnavailableOfferings
from leeway.replacement.zones import Wanted, order_zones
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Successor, ZoneChoice
from leeway.retirement.step_context import StepContext
from leeway.selection.offers.unavailable import Unavailable


class SuccessorLaunch:
    """Launches successors by name, and makes up for them."""

    def __init__(
        self, context: StepContext, groups: Groups, offerings: UnavailableOfferings, region: str
    ) -> None:
        self._context = context
        self._groups = groups
        self._offerings = offerings
        self._region = region

    def zones_for(self, record: Retirement, group: GroupFacts) -> tuple[ZoneChoice, ...]:
        """Decide in which of the group's zones a successor is asked for. What can't be read is not
        known to be in the way."""
        facts = record.facts
        wanted = Wanted(
            facts.zone,
            group.types or (facts.instance_type,),
            facts.capacity_type,
            tuple(self._bound_pods(record)),
        )
        unavailable: frozenset[Unavailable] = frozenset()
        with suppress(*API_ERRORS):
            unavailable = self._offerings.now(self._region, self._context.clock.now())
        return order_zones(group.zones, wanted, unavailable)

    def _bound_pods(self, record: Retirement) -> Iterator[tuple[str, str]]:
        """Yield the pods that have to stay in the zone where they run, each with the reason."""
        with suppress(*API_ERRORS):
            cluster, node = self._context.node_of(record, by_name=True)
            if node is None:
                return
            attached = {one.claim for one in cluster.attachments_on(node.name) if one.claim}
            for pod in cluster.pods_on(node.name):
                if attached.intersection(pod.claims):
                    yield pod.key, "a volume"
                elif pod.bound_to_zone:
                    yield pod.key, pod.bound_to_zone

    def launch(self, record: Retirement) -> tuple[Successor, ...]:
        """Have the group launch the successor, unless it has: in the first zone that has room.

        The tokens are the same for each attempt, so that it is launched once, whoever dies on the
        way: the record says in which order the zones are asked.

        Raises:
            CloudUnavailable: it may have been launched; asking again tells.
            CloudRefused: no zone has room, or the group does not take that.
        """
        intent = record.replacement_intent
        if intent is None:
            return ()
        if intent.successors or not intent.zones:
            return intent.successors
        said: list[str] = []
        for choice in intent.zones:
            token = f"{record.instance}-{intent.attempt}-{choice.zone}"
            answer = self._groups.launch(intent.group, choice.zone, intent.units, token)
            self._mark(record, answer.errors)
            if answer.instances:
                return tuple(
                    Successor(one.instance, one.instance_type, one.zone, choice.why)
                    for one in answer.instances
                )
            said += [f"{one.code} for {one.instance_type} in {one.zone}" for one in answer.errors]
        raise CloudRefused(f"group {intent.group} launched none: {', '.join(said)}")

    def _mark(self, record: Retirement, errors: Iterable[LaunchError]) -> None:
        """Note which offerings EC2 has none of; whoever can't note that goes on."""
        until = self._context.clock.now() + UNAVAILABLE_FOR
        for error in errors:
            if not error.lacks_capacity:
                continue
            sold_as = record.facts.capacity_type
            offering = Offering(self._region, error.instance_type, error.zone, sold_as)
            with suppress(*API_ERRORS):
                self._offerings.mark(offering, error.code, until)

    def end(self, record: Retirement, stays: bool = False, again: bool = False) -> bool:
        """Have a group that launched a successor be as large as before: it ends this instance with
        a decrement or, where that is gone or `stays`, its successor.

        Without a decrement, so that the group replaces it, where none was launched or somebody has
        lowered the group meanwhile and its successor went by that. `again` says that the group may
        have been asked to end the instance before. Returns whether a hook keeps that now, of which
        is still to be told.
        """
        intent, groups = record.replacement_intent, self._groups
        if intent is None:
            return False
        group = groups.facts(record.instance)
        serves = group is not None and group.lifecycle_state == "InService"
        if group is not None and serves and not stays:
            successors = self._launched(record)
            lowered = group.desired < intent.desired and not any(self._serving(successors))
            launched = bool(successors) or not intent.zones
            groups.terminate_in_group(
                record.instance, decrement=launched and group.may_shrink and not lowered
            )
            return group.terminate_hook_waits
        if again and not serves:
            return group is not None and group.terminate_hook_waits
        for successor, its_group in self._serving(self._launched(record)):
            if serves or its_group.desired >= intent.desired:
                groups.terminate_in_group(successor.instance, decrement=its_group.may_shrink)
        return False

    def _launched(self, record: Retirement) -> tuple[Successor, ...]:
        """Return what was launched. Where that was not noted, asking again tells."""
        with suppress(CloudRefused):
            return self.launch(record)
        return ()

    def _serving(self, successors: Iterable[Successor]) -> Iterator[tuple[Successor, GroupFacts]]:
        for successor in successors:
            group = self._groups.facts(successor.instance)
            if group is not None and group.stays_in_group:
                yield successor, group
