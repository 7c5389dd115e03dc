"""Launches successors with LaunchInstances, and restores the group's capacity afterwards.

LaunchInstances raises the group's desired capacity. The termination of the drained instance with a
decrement lowers it by the same amount. Both calls are relative, so that others may change the group
at the same time.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from leeway.execution.retrying import API_ERRORS
from leeway.instances.groups import GroupFacts
from leeway.policy.rules import UNAVAILABLE_FOR
from leeway.ports.aws import CloudRefused, Groups, LaunchError
from leeway.ports.table import Offering, UnavailableOfferings
from leeway.replacement.zones import SuccessorNeeds, order_zones
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import (
    Method,
    ReplacementIntent,
    Successor,
    ZoneChoice,
)
from leeway.retirement.step_context import StepContext
from leeway.selection.offers.catalog import Unavailable


class GroupLacksCapacity(CloudRefused):
    """EC2 has no capacity for any of the types of a group, in any of the requested zones."""


class SuccessorLaunch:
    """Launches successors and restores the capacity of their groups."""

    def __init__(
        self, context: StepContext, groups: Groups, offerings: UnavailableOfferings, region: str
    ) -> None:
        self._context = context
        self._groups = groups
        self._offerings = offerings
        self._region = region

    def choose_zones(self, record: Retirement, group: GroupFacts) -> tuple[ZoneChoice, ...]:
        """Decide in which of the group's zones a successor is launched. If the table or the cluster
        cannot be read, the decision is made without it."""
        facts = record.facts
        needs = SuccessorNeeds(
            facts.zone,
            group.types or (facts.instance_type,),
            facts.capacity_type,
            tuple(self._bound_pods(record)),
        )
        return order_zones(group.zones, needs, self._unavailable())

    def lacks_capacity(self, record: Retirement, group: GroupFacts) -> bool:
        """Whether EC2 has reported within the last minutes that it has no capacity for any type of
        the group, in any of its zones. False if the table cannot be read."""
        facts = record.facts
        types = group.types or (facts.instance_type,)
        needs = SuccessorNeeds(facts.zone, types, facts.capacity_type)
        return bool(group.zones) and not order_zones(group.zones, needs, self._unavailable())

    def _unavailable(self) -> frozenset[Unavailable]:
        with suppress(*API_ERRORS):
            return self._offerings.now(self._region, self._context.clock.now())
        return frozenset()

    def _bound_pods(self, record: Retirement) -> Iterator[tuple[str, str]]:
        """Yield the pods that can only run in the zone where they run, each with the cause."""
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
        """Launch the successor, if that is not recorded yet, in the first zone with capacity.

        The client tokens are the same in every attempt, and the record has the order of the zones.
        So the successor is launched once, also if the function crashes in between.

        Raises:
            CloudUnavailable: the launch may have succeeded; a retry with the same token tells.
            GroupLacksCapacity: no zone has capacity.
            CloudRefused: the group refuses LaunchInstances, or launches nothing for other reasons.
        """
        intent = record.replacement_intent
        if intent is None:
            return ()
        if intent.successors or not intent.zones:
            return intent.successors
        failures: list[LaunchError] = []
        for choice in intent.zones:
            token = f"{record.instance}-{intent.attempt}-{choice.zone}"
            answer = self._groups.launch(intent.group, choice.zone, intent.units, token)
            self._mark_unavailable(record, answer.errors)
            if answer.instances:
                return tuple(
                    Successor(one.instance, one.instance_type, one.zone, choice.why)
                    for one in answer.instances
                )
            failures += answer.errors
        named = (f"{one.code} for {one.instance_type} in {one.zone}" for one in failures)
        lacks = bool(failures) and all(one.lacks_capacity for one in failures)
        error = GroupLacksCapacity if lacks else CloudRefused
        raise error(f"group {intent.group} launched no instance: {', '.join(named)}")

    def _mark_unavailable(self, record: Retirement, errors: Iterable[LaunchError]) -> None:
        """Record the offerings for which EC2 has no capacity. A failed write is ignored."""
        until = self._context.clock.now() + UNAVAILABLE_FOR
        for error in errors:
            if not error.lacks_capacity:
                continue
            capacity_type = record.facts.capacity_type
            offering = Offering(self._region, error.instance_type, error.zone, capacity_type)
            with suppress(*API_ERRORS):
                self._offerings.mark(offering, error.code, until)

    def restore_capacity(
        self, record: Retirement, stays: bool = False, repeated: bool = False
    ) -> bool:
        """Restore the desired capacity of a group for which a successor was launched in addition.

        The group terminates this instance with a decrement. If the instance is gone or `stays`, the
        group terminates the successor with a decrement instead. There is no decrement, so that the
        group launches a replacement, if no successor was launched, or if another client has lowered
        the desired capacity and the successor is gone.

        `repeated` says that an earlier try may have terminated the instance. Returns whether a
        lifecycle hook keeps the instance now, whose notice is still to come.
        """
        intent, groups = record.replacement_intent, self._groups
        if intent is None:
            return False
        group = groups.facts(record.instance)
        in_service = group is not None and group.lifecycle_state == "InService"
        if intent.method is Method.REQUEST_CAPACITY:
            return self._replaced_by_pools(record, intent, group, stays, repeated)
        if group is not None and in_service and not stays:
            successors = self._find_successors(record)
            lowered = group.desired < intent.desired and not any(self._in_group(successors))
            launched = bool(successors) or not intent.zones
            groups.terminate_in_group(
                record.instance, decrement=launched and group.may_shrink and not lowered
            )
            return group.terminate_hook_waits
        if repeated and not in_service:
            return group is not None and group.terminate_hook_waits
        for successor, its_group in self._in_group(self._find_successors(record)):
            if in_service or its_group.desired >= intent.desired:
                groups.terminate_in_group(successor.instance, decrement=its_group.may_shrink)
        return False

    def _replaced_by_pools(
        self,
        record: Retirement,
        intent: ReplacementIntent,
        group: GroupFacts | None,
        stays: bool,
        repeated: bool,
    ) -> bool:
        """Terminate an instance that nodes of Leeway's pools replace: with a decrement, so that the
        group launches no second successor. Without a successor the group keeps its desired
        capacity, and launches an instance as soon as EC2 has capacity for it. An instance that
        stays, or that the group does not have in service, is left as it is."""
        if group is None:
            return False
        if group.lifecycle_state != "InService":
            return repeated and group.terminate_hook_waits
        if stays:
            return False
        decrement = bool(intent.successors) and group.may_shrink
        self._groups.terminate_in_group(record.instance, decrement=decrement)
        return group.terminate_hook_waits

    def _find_successors(self, record: Retirement) -> tuple[Successor, ...]:
        """Return the successors. If they are not recorded, a launch with the same token tells."""
        with suppress(CloudRefused):
            return self.launch(record)
        return ()

    def _in_group(self, successors: Iterable[Successor]) -> Iterator[tuple[Successor, GroupFacts]]:
        for successor in successors:
            group = self._groups.facts(successor.instance)
            if group is not None and group.stays_in_group:
                yield successor, group
