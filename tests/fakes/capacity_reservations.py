"""Capacity reservations in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from leeway.launch.reservations import CapacityReservation
from leeway.manifests.base import CapacityReservationTerm
from leeway.ports.aws import CloudRefused


@dataclass
class CapacityReservationsInMemory:
    """The CapacityReservations Protocol; `refused` is EC2's answer to every read. `reads` are the
    terms of each."""

    known: dict[str, CapacityReservation] = field(default_factory=dict)
    refused: str = ""
    reads: list[Sequence[CapacityReservationTerm]] = field(default_factory=list)

    def add(self, *given: CapacityReservation) -> None:
        """Add reservations."""
        self.known |= {one.id: one for one in given}

    def matching(self, terms: Sequence[CapacityReservationTerm]) -> list[CapacityReservation]:
        self.reads.append(terms)
        if self.refused:
            raise CloudRefused(self.refused)
        return [one for _, one in sorted(self.known.items()) if any(_fits(t, one) for t in terms)]


def _fits(term: CapacityReservationTerm, one: CapacityReservation) -> bool:
    if term.id is not None:
        return term.id == one.id
    return (
        term.owner_id in {None, one.owner}
        and term.instance_match_criteria in {None, "open" if one.is_open else "targeted"}
        and all(k in one.tags and v in {"*", one.tags[k]} for k, v in term.tags.items())
    )
