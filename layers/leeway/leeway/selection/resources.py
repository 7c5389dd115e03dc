"""Amounts of resources by name, as integers: cpu in millicores, all else in its base unit."""

from collections.abc import ItemsView, Iterator, Mapping
from typing import Self

from leeway.selection.quantities import amount, printed

EBS_VOLUMES = "attachable-volumes-csi-ebs.csi.aws.com"
"""The volumes of the EBS CSI driver on one node, by the name of the Kubernetes limit."""


class Resources(Mapping[str, int]):
    """An immutable, hashable mapping. A resource that is not named has the amount 0.

    Zero amounts are not stored, so that equal amounts are equal values.
    """

    __slots__ = ("_amounts", "_hash")

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = {name: n for name, n in (amounts or {}).items() if n}
        self._hash: int | None = None

    @classmethod
    def parsed(cls, quantities: Mapping[str, str | int]) -> Self:
        """Parse Kubernetes quantities.

        Raises:
            BadQuantity: a quantity is invalid.
        """
        return cls({name: amount(name, text) for name, text in quantities.items()})

    def printed(self) -> dict[str, str]:
        """Return Kubernetes quantities in canonical form, without EBS volumes, which Kubernetes
        counts separately."""
        return {name: printed(name, n) for name, n in self._amounts.items() if name != EBS_VOLUMES}

    def of(self, name: str) -> int:
        """Return the amount of a resource, 0 if it is not named."""
        return self._amounts.get(name, 0)

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def items(self) -> ItemsView[str, int]:
        """Return the amounts by name. That of `Mapping` takes several times as long."""
        return self._amounts.items()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._amounts.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._amounts == other._amounts

    def __repr__(self) -> str:
        return f"Resources({self.printed()})"

    def __add__(self, other: "Resources") -> "Resources":
        total = dict(self._amounts)
        for name, n in other._amounts.items():
            total[name] = total.get(name, 0) + n
        return Resources(total)

    def __sub__(self, other: "Resources") -> "Resources":
        rest = dict(self._amounts)
        for name, n in other._amounts.items():
            rest[name] = rest.get(name, 0) - n
        return Resources(rest)

    def times(self, count: int) -> "Resources":
        """Return a multiple of these amounts."""
        return Resources({name: n * count for name, n in self._amounts.items()})

    def most(self, other: "Resources") -> "Resources":
        """Return the larger amount of each resource."""
        larger = dict(self._amounts)
        for name, n in other._amounts.items():
            larger[name] = max(n, larger.get(name, 0))
        return Resources(larger)

    def fits(self, into: "Resources") -> bool:
        """Whether these amounts fit into the other amounts. An amount of 0 always fits."""
        room = into._amounts
        return all(n <= room.get(name, 0) for name, n in self._amounts.items() if n > 0)
