"""What a move of pods is worth: one rule for everything that consolidation does."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Worth:
    """What a move of pods is worth: `saving per hour x horizon` must reach `per_pod x pods moved`.

    - `horizon`: how long a plan is expected to hold, until the pods change so much that they would
      be moved again.
    - `per_pod`: the price in USD of moving one pod.
    - `share`: the least part of the old price that a replacement saves. Spot prices change by a few
      percent all the time, and the next plan must not undo this one.
    - `least_age`: nodes with pods are kept until they are so old, and a replacement pays for its
      moves within this time. So no plan moves the pods of a replacement before it has paid.
    - `per_preference`: the price in USD of a move after which a pod's preferences, which held, hold
      no more; None: no plan breaks them.
    """

    horizon: timedelta = timedelta(hours=4)
    per_pod: float = 0.005
    share: float = 0.05
    least_age: timedelta = timedelta(minutes=30)
    per_preference: float | None = None

    def gain(self, saving: float, pods: int, quiet: timedelta) -> float:
        """Return what it gains in USD to move this many pods to save so many USD per hour.

        `quiet` is for how long no pod has come to the nodes or left them: the pods are expected to
        stay as they are for as long again, `horizon` at most.
        """
        hours = min(self.horizon, quiet) / timedelta(hours=1)
        return saving * hours - self.per_pod * pods

    def pays(self, saving: float, pods: int, quiet: timedelta, broken: int = 0) -> bool:
        """Whether it is worth to move this many pods, of which `broken` lose preferences, in order
        to save so many USD per hour."""
        if broken and self.per_preference is None:
            return False
        lost = broken * (self.per_preference or 0.0)
        return saving > 0 and self.gain(saving, pods, quiet) >= lost

    def pays_replacement(
        self, saving: float, price: float, pods: int, quiet: timedelta, broken: int = 0
    ) -> bool:
        """The same for nodes of this price in USD per hour, if a new one is launched for them."""
        soon = min(quiet, self.least_age)
        return saving >= self.share * price and self.pays(saving, pods, soon, broken)

    def least_saving(self, pods: int, quiet: timedelta, price: float | None = None) -> float | None:
        """Return the USD per hour from which it pays to move this many pods; None if nothing pays
        yet. `price` is that of the nodes in USD per hour, None if no new one is launched."""
        expected = min(self.horizon, quiet)
        if price is not None:
            expected = min(expected, self.least_age)
        if pods and not expected:
            return None
        by_moves = self.per_pod * pods / (expected / timedelta(hours=1)) if pods else 0.0
        return max(self.share * (price or 0.0), by_moves)


USUAL = Worth()
"""What a move is worth if the manifest says nothing else."""
