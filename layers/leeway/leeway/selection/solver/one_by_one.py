"""Packs pods one by one: ruin and recreate (Schrimpf et al., 2000).

Some nodes are removed and their pods placed again: each where the price increases least, or on the
new node with the most value for its price. The cheaper result stays.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import ge

import numpy as np

from leeway.selection.solver.few_nodes import FewNodes, Groups, Offerings, booleans
from leeway.selection.solver.problem import Bools, Floats, Ints, Problem, Proceed
from leeway.selection.solver.programs import Pattern, required_nodes
from leeway.selection.solver.whole_nodes import Mixes, filled, mixes

NEAR_BEST, TRIES = 0.98, 30
"""A new node is taken if its value for its price is at least this share of the best estimate, or
after this number of nodes was filled."""

FEW = 48
"""Up to this number of nodes, loops over nodes are faster than operations on arrays."""

SPACE = 8
"""Nodes that a copy has space for: most rounds of improvement add fewer."""

_UNKNOWN = -2
_EMPTY = -1


@dataclass
class Nodes:
    """Nodes with their pods: N rows, and space for more.

    `spare` is what is left of the cheapest offering that holds a node's pods (`chosen`); `costs`
    are the prices of these offerings in USD per hour. `choices` are numbers of sets of offerings:
    those that all pods of a node may use, regardless of their number. `counted` and `limits` are
    the counts and the maxima of its counters, `worth` is the value of its pods.
    """

    count: int
    load: Floats  # R x N
    spare: Floats  # R x N
    counted: Floats  # K x N
    limits: Floats  # K x N
    costs: Floats  # N
    worth: Floats  # N
    choices: Ints  # N
    chosen: Ints  # N
    pods: list[tuple[int, ...]]  # the groups of each node's pods

    @property
    def price(self) -> float:
        """The price in USD per hour."""
        return float(self.costs[: self.count].sum())

    @property
    def gains(self) -> list[float]:
        """The value of each node's pods for its price."""
        costs = np.maximum(self.costs[: self.count], 1e-12)
        found: list[float] = (self.worth[: self.count] / costs).tolist()
        return found

    def of(self, rows: Sequence[int]) -> "Nodes":
        """Return copies of some nodes, with space for a few more: any row, as `new` resets it."""
        copied = np.concatenate([rows, np.zeros(SPACE)]).astype(np.int64)
        return Nodes(
            len(rows),
            self.load[:, copied],
            self.spare[:, copied],
            self.counted[:, copied],
            self.limits[:, copied],
            self.costs[copied],
            self.worth[copied],
            self.choices[copied],
            self.chosen[copied],
            [self.pods[row] for row in rows],
        )

    def _extend(self) -> None:
        """Double the space for nodes."""
        more = max(self.count, 16)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                widths = [(0, 0)] * (value.ndim - 1) + [(0, more)]
                setattr(self, name, np.pad(value, widths))

    def new(self, choice: int) -> int:
        """Add a node without pods. Return its row."""
        row = self.count
        if row == len(self.costs):
            self._extend()
        for amounts in (self.load, self.spare, self.counted):
            amounts[:, row] = 0
        self.limits[:, row] = np.inf
        self.costs[row] = self.worth[row] = 0
        self.choices[row] = choice
        self.pods.append(())
        self.count += 1
        return row


type AnyNodes = FewNodes | Nodes


class Inserter:
    """Inserts the pods of a problem into nodes. Offerings are numbered by price."""

    def __init__(self, problem: Problem) -> None:
        self.offerings = problem.undominated
        self._sizes = problem.sizes
        self._divisors = np.maximum(problem.sizes, 1e-12)
        self._least = problem.sizes - 1e-6
        self._least_of_each: list[list[float]] = self._least.tolist()
        self._fits = problem.fits[:, self.offerings]
        self._allowed = problem.allowed[:, self.offerings]
        kinds: dict[bytes, int] = {}
        self._kinds = [
            kinds.setdefault(column.tobytes(), len(kinds))
            for column in np.ascontiguousarray(np.packbits(self._allowed, axis=0).T)
        ]
        self._capacity = np.ascontiguousarray(problem.capacity[self.offerings].T)
        self._prices = problem.prices[self.offerings]
        # The cost of a pod on its best offering. Pods without requests must be inserted too.
        costs = problem.of_offerings(self.offerings).costs
        self.worth = np.maximum(costs.min(axis=1), 1e-15)
        self._matches, self._caps = _counters(problem)
        involved = (self._matches > 0) | np.isfinite(self._caps)
        self._involved = [np.flatnonzero(row).tolist() for row in involved]
        self.apart = np.isfinite(self._caps).any(axis=1)
        self.unconstrained = not self._matches.any() and _alike(problem, self.offerings)
        self._alone = self._fits.argmax(axis=1)
        self._choices = np.zeros((0, len(self.offerings)), dtype=bool)  # the sets of offerings
        self._numbers: dict[bytes, int] = {}
        self._common = np.zeros((0, 0), dtype=np.int64)
        self._choice_of = np.array([self._number(row) for row in self._fits])
        self._groups = Groups(problem.sizes, self._fits, self._matches, self._caps, self.worth)
        self._offered = Offerings(problem.capacity[self.offerings], self._prices)

    def none(self) -> AnyNodes:
        """Return no nodes."""
        return FewNodes(self._groups, self._offered)

    def _many(self, few: FewNodes) -> Nodes:
        """The same nodes as arrays."""
        rows, counters = few.nodes, (self._matches.shape[1], few.count)
        counted, limits = np.zeros(counters), np.full(counters, np.inf)
        for row, node in enumerate(rows):
            counted[list(node.counted), row] = list(node.counted.values())
            limits[list(node.limits), row] = list(node.limits.values())
        return Nodes(
            len(rows),
            np.array([node.load for node in rows]).T,
            np.array([node.spare for node in rows]).T,
            counted,
            limits,
            np.array([node.cost for node in rows]),
            np.array([node.worth for node in rows]),
            np.array([self._number(booleans(node.choice, self._fits.shape[1])) for node in rows]),
            np.array([node.chosen for node in rows]),
            [node.pods for node in rows],
        )

    def insert(self, nodes: AnyNodes, pods: Floats, ratings: Floats) -> AnyNodes:
        """Insert pods of each group (G) into the nodes, or new ones, the best rated groups first.
        Return all nodes."""
        for group in _in_order(pods, ratings):
            left = int(pods[group])
            while left:
                nodes = self._roomy(nodes)
                if isinstance(nodes, FewNodes):
                    left -= nodes.insert(group, left)
                else:
                    left -= self._insert(nodes, group, left)
        return nodes

    def _roomy(self, nodes: AnyNodes) -> AnyNodes:
        """The nodes as arrays if there are many."""
        return self._many(nodes) if isinstance(nodes, FewNodes) and nodes.count > FEW else nodes

    def _insert(self, nodes: Nodes, group: int, pods: int) -> int:
        """Put a pod onto the node where the price increases least, or onto a new node if that is
        cheaper; more pods, if the node has room. Return their number."""
        count = nodes.count
        common = self._common_choices(nodes.choices[:count], int(self._choice_of[group]))
        feasible = common >= 0
        if self._involved[group]:
            feasible &= self._admitting(nodes, group)
        row, number = self._with_room(nodes, group, feasible), 1
        offering = int(nodes.chosen[row]) if row >= 0 else -1
        if row >= 0:
            number = self._room(nodes, row, group, pods)
        else:
            row, offering = self._cheapest(nodes, group, np.flatnonzero(feasible), common)
        if row < 0:
            row, offering = nodes.new(int(self._choice_of[group])), int(self._alone[group])
        else:
            nodes.choices[row] = common[row]
        nodes.chosen[row], nodes.costs[row] = offering, self._prices[offering]
        self._put(nodes, row, group, number)
        return number

    def _room(self, nodes: Nodes, row: int, group: int, pods: int) -> int:
        """How many of these pods, at least one, fit on a node without a larger offering."""
        room = float(pods)
        if pods > 1:
            spare = (nodes.spare[:, row] + 1e-6) / self._divisors[group]
            room = min(room, float(np.floor(spare).min()))
            for k in self._involved[group]:
                if adds := self._matches[group, k]:
                    most = min(nodes.limits[k, row], self._caps[group, k])
                    room = min(room, float(np.floor((most - nodes.counted[k, row]) / adds)))
        return max(int(room), 1)

    def _put(self, nodes: Nodes, row: int, group: int, pods: int) -> None:
        nodes.load[:, row] += pods * self._sizes[group]
        nodes.spare[:, row] = self._capacity[:, nodes.chosen[row]] - nodes.load[:, row]
        nodes.worth[row] += pods * self.worth[group]
        nodes.pods[row] += (group,) * pods
        for k in self._involved[group]:
            nodes.counted[k, row] += pods * self._matches[group, k]
            nodes.limits[k, row] = min(nodes.limits[k, row], self._caps[group, k])

    def _admitting(self, nodes: Nodes, group: int) -> Bools:
        """The nodes whose counters allow one more pod, regardless of size: N."""
        found = np.ones(nodes.count, dtype=bool)
        for k in self._involved[group]:
            most = np.minimum(nodes.limits[k, : nodes.count], self._caps[group, k])
            found &= nodes.counted[k, : nodes.count] + self._matches[group, k] <= most
        return found

    def _with_room(self, nodes: Nodes, group: int, feasible: Bools) -> int:
        """The first node whose offering has room for a pod; -1 if there is none."""
        found = feasible & self._fits[group][nodes.chosen[: nodes.count]]
        for spare, requested in zip(nodes.spare, self._sizes[group], strict=True):
            found &= spare[: nodes.count] >= requested
        row = int(found.argmax()) if len(found) else 0
        return row if len(found) and found[row] else -1

    def _cheapest(self, nodes: Nodes, group: int, rows: Ints, common: Ints) -> tuple[int, int]:
        """The node that costs least more with a larger offering, and that offering; -1 if a new
        node costs less."""
        if not len(rows):
            return -1, -1
        costs, alone = nodes.costs[rows], self._prices[self._alone[group]]
        low = int(self._prices.searchsorted(costs.min()))
        high = int(self._prices.searchsorted(costs.max() + alone, side="right"))
        fits = self._choices[common[rows], low:high]
        for held, load, requested in zip(
            self._capacity, nodes.load, self._sizes[group], strict=True
        ):
            fits &= (load[rows] + requested)[:, None] <= held[low:high]
        first = fits.argmax(axis=1)
        more = self._prices[low + first] - costs
        more[~fits[np.arange(len(rows)), first]] = np.inf
        at = int(more.argmin())
        return (int(rows[at]), low + int(first[at])) if more[at] <= alone else (-1, -1)

    def _common_choices(self, choices: Ints, other: int) -> Ints:
        """The intersections of sets of offerings with another one; -1 if they are empty."""
        found: Ints = self._common[choices, other]
        if len(found) and found.min() == _UNKNOWN:
            for choice in np.unique(choices[found == _UNKNOWN]).tolist():
                both = self._choices[choice] & self._choices[other]
                number = self._number(both) if both.any() else _EMPTY
                self._common[choice, other] = number
            found = self._common[choices, other]
        return found

    def _number(self, row: Bools) -> int:
        """The number of a set of offerings (O)."""
        number = self._numbers.setdefault(row.tobytes(), len(self._choices))
        if number == len(self._choices):
            self._choices = np.concatenate([self._choices, row[None]])
            more = len(self._choices) - len(self._common)
            self._common = np.pad(self._common, (0, max(more, 0)), constant_values=_UNKNOWN)
        return number

    def add(self, nodes: AnyNodes, pods: Sequence[tuple[int, int]]) -> AnyNodes:
        """Add a node with pods: groups with numbers. Its offering is the cheapest one that holds
        them. Return all nodes."""
        nodes = self._roomy(nodes)
        if isinstance(nodes, FewNodes):
            nodes.add(pods)
        else:
            self._add(nodes, pods)
        return nodes

    def insert_on_new_nodes(
        self,
        nodes: AnyNodes,
        pods: Floats,
        ratings: Floats,
        factors: Floats,
        limit: float = math.inf,
    ) -> AnyNodes | None:
        """Put pods of each group (G) onto new nodes, each with nearly the most value for its price.
        `factors` change the ratings of offerings (O). Return all nodes; None if they will cost more
        than the `limit` (USD per hour): the first ones have the most value for their price."""
        filling = _Filling(self, _in_order(pods, ratings), pods)
        rated = factors / np.maximum(self._prices, 1e-12)
        gains = filling.values() * rated
        total = max(float(self.worth @ pods), 1e-12)
        placed = 0.0
        while filling.left.any():
            if limit < math.inf and nodes.price * total > limit * placed:
                return None
            tried: list[tuple[float, float, list[tuple[int, int]]]] = []
            best = int(gains.argmax())
            while len(tried) < TRIES:
                at = best
                places, value = filling.node(at)
                gains[at] = value * rated[at]  # fewer pods are left than at its last estimate
                tried.append((gains[at], value, places))
                best = int(gains.argmax())
                if gains[at] >= NEAR_BEST * gains[best]:
                    break
            _, value, places = max(tried, key=lambda each: each[0])
            if not places:
                continue
            taken = filling.take(places)
            placed += value
            # Most offerings need no other estimate: it would be lower than the best one.
            gains = np.minimum(gains, filling.most() * rated)
            nodes = self.add(nodes, taken)
        return nodes

    def _add(self, nodes: Nodes, pods: Sequence[tuple[int, int]]) -> None:
        row = nodes.new(int(self._choice_of[pods[0][0]]))
        for group, number in pods:
            other = int(self._choice_of[group])
            nodes.choices[row] = self._common_choices(nodes.choices[row : row + 1], other)[0]
            self._put(nodes, row, group, number)
        fits = self._choices[nodes.choices[row]].copy()
        for held, load in zip(self._capacity, nodes.load[:, row], strict=True):
            fits &= load <= held
        chosen = int(fits.argmax())
        nodes.chosen[row], nodes.costs[row] = chosen, self._prices[chosen]
        nodes.spare[:, row] = self._capacity[:, chosen] - nodes.load[:, row]


class _Filling:
    """Fills single nodes from the same pods. Groups are in the order in which they are put."""

    def __init__(self, inserter: Inserter, order: Sequence[int], pods: Floats) -> None:
        self.left = pods[order]
        self._order = order
        self._inserter = inserter
        self._sizes = inserter._groups.sizes
        self._least = inserter._least_of_each
        self._counters = inserter._groups.counters
        self._fitting = inserter._groups.fits
        self._worth = inserter._groups.worth
        valued = inserter.worth[order][:, None]
        self._valued = valued * inserter._fits[order] if len(order) <= FEW else valued
        # Offerings that the same groups may use, regardless of size, such as those of one zone.
        self._of_kind: dict[int, tuple[Ints, Floats, Floats, Floats]] = {}

    def values(self) -> Floats:
        """The value of the pods on one node of each offering: O."""
        inserter = self._inserter
        free = inserter._capacity.copy()
        counted = np.zeros((inserter._matches.shape[1], free.shape[1]))
        limits = np.full(counted.shape, np.inf)
        values = np.zeros(free.shape[1])
        for group, left in zip(self._order, self.left.tolist(), strict=True):
            counters = self._counters[group]
            if left == 1:
                holding = (free >= inserter._least[group][:, None]).all(axis=0)
                room = (holding & inserter._fits[group]).astype(float)
            else:
                room = np.floor((free + 1e-6) / inserter._divisors[group][:, None]).min(axis=0)
                room = np.minimum(room, left * inserter._fits[group])
            for k, adds, most in counters:
                room = self._countable(room, counted[k], np.minimum(limits[k], most), adds)
            free -= room * inserter._sizes[group][:, None]
            for k, adds, most in counters:
                limits[k] = np.where(room > 0, np.minimum(limits[k], most), limits[k])
                counted[k] += room * adds
            values += room * self._worth[group]
        return values

    def most(self) -> Floats:
        """The value of the pods that are left: with a few groups, of those that fit on an offering
        by themselves (O); otherwise of all (1)."""
        found: Floats = self.left @ self._valued
        return found

    @staticmethod
    def _countable(room: Floats, counted: Floats, most: Floats, adds: float) -> Floats:
        if adds:
            return np.maximum(np.minimum(room, np.floor((most - counted) / adds)), 0)
        return np.where(counted <= most, room, 0)

    def take(self, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take pods by the position of their group. Return their groups with the numbers."""
        for at, number in places:
            self.left[at] -= number
        return [(self._order[at], number) for at, number in places]

    def node(self, offering: int) -> tuple[list[tuple[int, int]], float]:
        """The pods on one node of an offering: positions of groups with numbers; their value."""
        if len(self._order) <= FEW:
            return self._node_of_few(offering)
        caps_of, involved = self._inserter._caps, self._inserter._involved
        positions, sizes, matches, caps = self._arrays(offering)
        free: list[float] = self._inserter._capacity[:, offering].tolist()
        feasible = self.left[positions] > 0
        for there, requested in zip(free, sizes, strict=True):
            feasible &= requested <= there
        counted: dict[int, float] = {}
        limits: dict[int, float] = {}
        taken, value = [], 0.0
        while len(feasible) and feasible[column := int(feasible.argmax())]:
            at = int(positions[column])
            group = self._order[at]
            feasible[column] = False
            requests = self._sizes[group]
            room = float(self.left[at])
            for there, requested in zip(free, requests, strict=True):
                room = min(room, (there + 1e-6) // max(requested, 1e-12))
            for k in involved[group]:
                limits[k] = min(limits.get(k, np.inf), caps_of[group, k])
                if adds := matches[k, column]:
                    room = min(room, float(np.floor((limits[k] - counted.get(k, 0)) / adds)))
            free = [there - room * own for there, own in zip(free, requests, strict=True)]
            for there, requested in zip(free, sizes, strict=True):
                feasible &= requested <= there
            for k in involved[group]:
                counted[k] = counted.get(k, 0) + room * matches[k, column]
                feasible &= counted[k] + matches[k] <= np.minimum(limits[k], caps[k])
            taken.append((at, int(room)))
            value += room * self._worth[group]
        return taken, value

    def _node_of_few(self, offering: int) -> tuple[list[tuple[int, int]], float]:
        """The same for a few groups, in a loop over all of them."""
        free: list[float] = self._inserter._capacity[:, offering].tolist()
        counted: dict[int, float] = {}
        limits: dict[int, float] = {}
        taken, value = [], 0.0
        for at, left in enumerate(self.left.tolist()):
            group = self._order[at]
            if not left or not self._fitting[group] >> offering & 1:
                continue
            if not all(map(ge, free, self._least[group])):
                continue
            room, counters, requests = left, self._counters[group], self._sizes[group]
            if left > 1:
                for there, requested in zip(free, requests, strict=True):
                    room = min(room, (there + 1e-6) // max(requested, 1e-12))
            for k, adds, most in counters:
                most = min(limits.get(k, math.inf), most)
                if counted.get(k, 0) + adds > most:
                    room = 0.0
                elif adds and most < math.inf:
                    room = min(room, (most - counted.get(k, 0)) // adds)
            if room < 1:
                continue
            free = [there - room * own for there, own in zip(free, requests, strict=True)]
            for k, adds, most in counters:
                limits[k] = min(limits.get(k, math.inf), most)
                counted[k] = counted.get(k, 0) + room * adds
            taken.append((at, int(room)))
            value += room * self._worth[group]
        return taken, value

    def _arrays(self, offering: int) -> tuple[Ints, Floats, Floats, Floats]:
        """The groups that may use an offering: positions, sizes (R x G), matches and caps (K x
        G)."""
        inserter = self._inserter
        kind = inserter._kinds[offering]
        if kind not in self._of_kind:
            order = np.array(self._order)
            positions = np.flatnonzero(inserter._allowed[order, offering])
            groups = order[positions]
            self._of_kind[kind] = (
                positions,
                np.ascontiguousarray(inserter._sizes[groups].T),
                np.ascontiguousarray(inserter._matches[groups].T),
                np.ascontiguousarray(inserter._caps[groups].T),
            )
        return self._of_kind[kind]


def _in_order(pods: Floats, ratings: Floats) -> list[int]:
    """The groups with pods, the best rated first."""
    groups = np.flatnonzero(pods)
    order: list[int] = groups[np.argsort(-ratings[groups], kind="stable")].tolist()
    return order


def _alike(problem: Problem, offerings: Ints) -> bool:
    """Whether all groups may use the same offerings, apart from size."""
    part = problem.of_offerings(offerings)
    holding = replace(part, allowed=np.ones_like(part.allowed)).fits
    return bool((part.fits == (holding & part.allowed.any(axis=0))).all())


def _counters(problem: Problem) -> tuple[Floats, Floats]:
    """The matches and caps of a problem (G x K), with a counter for each `max_per_node`."""
    own = np.flatnonzero(np.isfinite(problem.max_per_node))
    groups = np.arange(len(problem.counts))[:, None]
    alone = groups == own
    matches = np.concatenate([problem.matches, alone.astype(float)], axis=1)
    caps = np.where(alone, problem.max_per_node[:, None], np.inf)
    return matches, np.concatenate([problem.caps, caps], axis=1)


SEED = 1
"""A fixed seed, so that the same pods have the same plan."""

RUINED = (2, 4)
"""The number of nodes that one round removes: from the first number to one below the second."""

MIN_CHANCE = 0.05
"""The relative chance of the most efficient node to be removed."""

SHUFFLE = 0.5
"""The maximum relative change of the rating of a group or an offering in one round."""

NEW_NODE_SHARE = 0.3
"""The share of rounds that put the removed pods onto new nodes instead of inserting them."""

MOVES, LEAST_MOVES = 10, 500
"""How often pods without constraints are moved on average, but in total at least the second number:
more rounds find hardly more."""

MOST_MOVES = 10_000
"""The total in any case: in a large batch, a round moves hundreds of pods of a few large nodes."""

MOST_ROUNDS = 100
"""The maximum number of rounds for pods without constraints."""

TRUSTED = 1.1
"""The improvement stops at the price of the cheapest whole nodes that were found, but not above
this multiple of the bound: there may be cheaper ones."""

MANY_REQUIRED = 0.9
"""The share of the nodes that anti-affinity requires, from which nodes are not chosen by their
value."""

NEAR_ENOUGH = 1.02
"""Patterns are tried if other plans cost more than this multiple of the bound."""

FEW_GROUPS, PODS_TO_FILL_A_NODE = 30, 8
"""If up to the first number of groups without constraints have less than the second number of pods
for each of the cheapest nodes, patterns are made first. The bound is out of reach then."""

NEAR_DIVISIBLE = 1.01
"""Up to this multiple of the price of divisible patterns, no other first plan is made: hardly any
costs less."""

CLOSE_TO_BOUND = 1.005
"""The improvement stops at this multiple of the bound."""

TRIED_MIXES, FAILED = 4, 2
"""Mixes of whole nodes that are tried for each slack, until so many in a row cost no less."""

ORDERS, PODS_OF_ORDERS = 4, 200
"""The other orders of groups in which up to the second number of pods are put onto whole nodes in
the end: in one of them, cheaper nodes may have a place for all."""

LEFT_FREE = 0.5
"""What each node leaves free, in pods of the mean cost, if pods did not fill the cheapest nodes."""

TEMPERATURE = 0.02
"""The accepted price increase in the first round, as a share of an average node's price. It falls
to zero in the last round (simulated annealing)."""


def ruin_and_recreate(
    problem: Problem,
    rounds: int,
    bound: float,
    proceed: Proceed,
    patterns: Callable[[], tuple[Sequence[Pattern], float]] | None = None,
) -> list[Pattern]:
    """Return nodes that hold all pods of groups that fit on an offering.

    Improves a first plan for this number of rounds, until it costs no more than the bound (USD per
    hour), or until `proceed` returns False. `patterns` makes the first plan, but for pods without
    constraints only if there are few groups, or whole nodes are too expensive. It returns the price
    of divisible patterns too.
    """
    inserter = Inserter(problem)
    rng = np.random.default_rng(SEED)
    moves = math.inf
    whole_nodes: Mixes = []
    if rounds and inserter.unconstrained:
        whole_nodes = mixes(problem.of_offerings(inserter.offerings), TRIED_MIXES)
    if whole_nodes:
        best, bound = _unconstrained(inserter, problem, whole_nodes, bound, proceed, patterns)
        moves = min(max(MOVES * float(problem.counts.sum()), LEAST_MOVES), MOST_MOVES)
        rounds = min(rounds, MOST_ROUNDS)
    elif patterns:
        best = _nodes(inserter, patterns()[0])
    else:
        best = _start(inserter, problem, proceed)
    current = best
    for round_number in range(rounds):
        if best.price <= bound * CLOSE_TO_BOUND or moves <= 0 or not proceed():
            break
        ruined = _choose_ruined(current, rng)
        nodes = current.of([n for n in range(current.count) if n not in ruined])
        removed = [group for row in sorted(ruined) for group in current.pods[row]]
        pods = _counted(removed, len(problem.counts))
        moves -= len(removed)
        on_new_nodes = rng.random() < NEW_NODE_SHARE
        ratings = inserter.worth * _factors(rng, len(pods))
        if on_new_nodes:
            factors = _factors(rng, len(inserter.offerings))
            nodes = inserter.insert_on_new_nodes(nodes, pods, ratings, factors) or nodes
        else:
            nodes = inserter.insert(nodes, pods, ratings)
        temperature = TEMPERATURE * current.price / current.count * (1 - round_number / rounds)
        if nodes.price < current.price - temperature * math.log(1 - rng.random()):
            current = nodes
            best = current if current.price < best.price else best
    if problem.counts.sum() <= PODS_OF_ORDERS and not _are_small(problem, whole_nodes):
        best = _in_other_orders(inserter, problem, whole_nodes, best, bound, proceed)
    return _patterns(inserter, best)


def _unconstrained(
    inserter: Inserter,
    problem: Problem,
    whole_nodes: Mixes,
    bound: float,
    proceed: Proceed,
    patterns: Callable[[], tuple[Sequence[Pattern], float]] | None,
) -> tuple[AnyNodes, float]:
    """The first plan of pods without constraints, and the price at which improving it ends."""
    if patterns and _are_small(problem, whole_nodes):
        found, divisible = patterns()
        best, end = _nodes(inserter, found), max(bound, divisible)
        if best.price > NEAR_DIVISIBLE * end and proceed():
            other = _start(inserter, problem, proceed)
            best, end = min(best, other, key=lambda nodes: nodes.price), bound
        return best, end
    best, whole = _on_whole_nodes(inserter, problem, whole_nodes)
    if best.price > NEAR_ENOUGH * bound and proceed():
        other = _start(inserter, problem, proceed)
        if patterns and other.price > NEAR_ENOUGH * bound and proceed():
            other = min(other, _nodes(inserter, patterns()[0]), key=lambda nodes: nodes.price)
        best = min(best, other, key=lambda nodes: nodes.price)
    return best, max(bound, min(whole, TRUSTED * bound))


def _are_small(problem: Problem, whole_nodes: Mixes) -> bool:
    """Whether the cheapest nodes hold only a few pods each, of few groups: such pods do not fill
    whole nodes."""
    if not whole_nodes or len(problem.counts) > FEW_GROUPS:
        return False
    return float(problem.counts.sum()) < PODS_TO_FILL_A_NODE * len(whole_nodes[0][1])


def _patterns(inserter: Inserter, nodes: AnyNodes) -> list[Pattern]:
    """Each node as a pattern."""
    return [
        Pattern(int(inserter.offerings[chosen]), _counted(pods, len(inserter.worth)), 1)
        for chosen, pods in zip(nodes.chosen[: nodes.count], nodes.pods, strict=True)
    ]


def _nodes(inserter: Inserter, patterns: Sequence[Pattern]) -> AnyNodes:
    """The nodes of patterns."""
    nodes: AnyNodes = inserter.none()
    for pattern in patterns:
        pods = _numbered(pattern.pods)
        for _ in range(pattern.times):
            nodes = inserter.add(nodes, pods)
    return nodes


def _start(inserter: Inserter, problem: Problem, proceed: Proceed) -> AnyNodes:
    """The cheaper one of two first plans: pods in the order of their size; then, if anti-affinity
    requires most of the nodes, with the pods first whose number on one node is limited, and
    otherwise nodes by their value for their price."""
    pods = problem.counts
    best = inserter.insert(inserter.none(), pods, inserter.worth)
    if not proceed():
        return best
    nodes: AnyNodes | None
    if required_nodes(problem) >= MANY_REQUIRED * best.count:
        ratings = inserter.worth + inserter.worth.max() * inserter.apart
        nodes = inserter.insert(inserter.none(), pods, ratings)
    else:
        factors = np.ones(len(inserter.offerings))
        nodes = inserter.insert_on_new_nodes(
            inserter.none(), pods, inserter.worth, factors, best.price
        )
    return nodes if nodes is not None and nodes.price < best.price else best


def _on_whole_nodes(inserter: Inserter, problem: Problem, known: Mixes) -> tuple[AnyNodes, float]:
    """The best nodes that are chosen before their pods, and the price of about the cheapest whole
    nodes: hardly any plan costs less. If pods do not fill those, larger ones are chosen too."""
    part = problem.of_offerings(inserter.offerings)
    cheapest = known[0][0]
    best = _best_filled(inserter, part, known, inserter.worth)
    if best.price > NEAR_ENOUGH * cheapest:
        mean = float(inserter.worth @ problem.counts) / float(problem.counts.sum())
        larger = mixes(replace(part, prices=part.prices + LEFT_FREE * mean), TRIED_MIXES)
        if larger:
            other = _best_filled(inserter, part, larger, inserter.worth)
            best = min(best, other, key=lambda nodes: nodes.price)
    return best, cheapest


def _in_other_orders(
    inserter: Inserter,
    problem: Problem,
    found: Mixes,
    best: AnyNodes,
    bound: float,
    proceed: Proceed,
) -> AnyNodes:
    """The cheapest of these nodes and those of mixes that are filled in other orders."""
    part, rng = problem.of_offerings(inserter.offerings), np.random.default_rng(SEED)
    for _ in range(ORDERS):
        cheaper = [mix for mix in found if mix[0] < best.price]
        if not cheaper or best.price <= bound * CLOSE_TO_BOUND or not proceed():
            break
        ratings = inserter.worth * _factors(rng, len(inserter.worth))
        other = _best_filled(inserter, part, cheaper, ratings)
        best = min(best, other, key=lambda nodes: nodes.price)
    return best


def _best_filled(inserter: Inserter, part: Problem, found: Mixes, ratings: Floats) -> AnyNodes:
    """The cheapest nodes of mixes with all pods, the best rated groups first. Pods without a place
    are inserted."""
    order = np.array(_in_order(part.counts, ratings), dtype=np.int64)
    tried, lowest, failed = list[AnyNodes](), math.inf, 0
    for _, offerings in found:
        if float(part.prices[offerings].sum()) >= lowest:
            continue
        pods, left = filled(part, offerings, order)
        nodes = inserter.none()
        for row in pods:
            if row.any():
                nodes = inserter.add(nodes, _numbered(row))
        tried.append(inserter.insert(nodes, left, inserter.worth))
        failed = 0 if tried[-1].price < lowest else failed + 1
        lowest = min(lowest, tried[-1].price)
        if failed == FAILED:
            break
    return min(tried, key=lambda nodes: nodes.price)


def _numbered(pods: Floats) -> list[tuple[int, int]]:
    """The groups with pods (G), with their numbers."""
    return [(group, round(pods[group])) for group in np.flatnonzero(pods).tolist()]


def _counted(pods: Sequence[int], groups: int) -> Floats:
    """The number of pods of each group: G."""
    return np.bincount(pods, minlength=groups).astype(float)


def _factors(rng: np.random.Generator, count: int) -> Floats:
    return rng.uniform(1 - SHUFFLE, 1 + SHUFFLE, count)


def _choose_ruined(nodes: AnyNodes, rng: np.random.Generator) -> set[int]:
    """Choose random nodes, preferably those with little value for their price."""
    gains = nodes.gains
    best = max(*gains, 1e-12)
    chance = [1 + MIN_CHANCE - gain / best for gain in gains]
    count = min(nodes.count, int(rng.integers(*RUINED)))
    ruined: set[int] = set()
    while len(ruined) < count:  # as `rng.choice` draws, which takes a fifth of a millisecond
        for row in ruined:
            chance[row] = 0
        limits = list(accumulate(chance))
        drawn = rng.random(count - len(ruined)).tolist()
        ruined.update(bisect_right(limits, share * limits[-1]) for share in drawn)
    return ruined
