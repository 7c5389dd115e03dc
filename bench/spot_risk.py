"""Judges whether a memory of Spot interruptions pays, against price-capacity-optimized alone.

A market has an instance type in each zone as a capacity pool. Each pool has a stress: the sum of a
part that stays, and of parts that change within hours and that it shares with its family, its zone
or no other pool, with the time of day. The chance of a reclaim grows exponentially with the stress;
its mean over all pools is that of the row. Prices are those of the sandbox's catalog, and change
slowly. All policies see the same market, and each seed is another one.

- A reclaim takes 92 % of the instances of a pool at once: so many interruptions of a type in a zone
  come within three minutes. Source: "Spot-and-Scoot: Peeking Into Spot Instance Availability".
- EC2 knows the stress up to an error that this bench varies. Of the pools that a fleet requests, it
  takes the quarter with the most capacity, and launches the cheapest of it. Sources: EC2 API
  reference, SpotOptions. How many pools are "highest capacity" is not documented.
- Rebalance recommendations come as often as reclaims, and by the same stress. The pools with the
  most stress, one in fifty at each time, refuse launches.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np
from leeway.policy.rules import USUAL
from leeway.selection.labels import SPOT
from leeway.selection.offers.allocatable import NodeClass
from leeway_cli.selection.sources import sandbox_catalog
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Flags = NDArray[np.bool_]

FAMILIES = ("m5", "m5a", "m5d", "m5n", "m6a", "m6g", "m6i", "m7a", "m7g", "m7i", "r5", "r6i")
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")

STEP_HOURS = 1 / 12
DAYS = 14
STEPS = round(DAYS * 24 / STEP_HOURS)
WARM_UP = round(24 / STEP_HOURS)
"""Steps that no figure counts: the memory of a policy is empty at first."""

SEEDS = 20
NODES, LIFETIME_HOURS, PODS = 100, 24.0, 10
MONTH_HOURS = 730.0
RECLAIMED = 0.92
STEEPNESS = 1.5
"""How fast reclaims grow with stress: a pool that is one deviation worse has 4.5 times as many."""

STAYS, OF_FAMILY, OF_ZONE, OF_POOL, OF_DAY = 0.25, 0.2, 0.1, 0.35, 0.1
"""The parts of the variance of the stress."""

MARKED_HOURS = 1 / 20
"""Leeway leaves an offering out for three minutes after an interruption (UNAVAILABLE_FOR)."""

RATES = {"0.1": 0.1, "1": 1.0, "10": 10.0}
"""Interruptions of a node in a month, the mean of all pools. The Spot Instance advisor shows bands
from below 5 % to above 20 % a month."""

SIGHT = {"well": 0.3, "badly": 1.0, "not at all": inf}
"""How well EC2 knows the stress: the deviation of its error; that of the stress is 1. With no
sight, it takes pools by chance."""


@dataclass(frozen=True, slots=True)
class Market:
    """By step and pool: USD per hour; what EC2 takes for the stress; the chance of a reclaim per
    hour; whether a pool is reclaimed, is told to be at risk, and refuses launches."""

    prices: Floats
    seen: Floats
    hazard: Floats
    reclaims: Flags
    warnings: Flags
    refuses: Flags


@dataclass(slots=True)
class Memory:
    """What a policy remembers of each pool: reclaims and warnings, and the hours with own nodes,
    both halved in each half-life; and until which step it is left out."""

    half_life: float
    events: Floats
    hours: Floats
    out_until: Floats
    warned: float = 0.5

    def pass_step(self, used: Flags) -> None:
        """Let the time of a step pass."""
        kept = 0.5 ** (STEP_HOURS / self.half_life)
        self.events *= kept
        self.hours *= kept
        self.hours += used * STEP_HOURS

    def rates(self) -> Floats:
        """Return the reclaims per hour of each pool. The prior is one event at the mean rate of all
        pools, or at that of the middle band of the advisor if nothing has happened."""
        hours = float(self.hours.sum())
        mean = max(float(self.events.sum()) / hours if hours else 0.0, 0.1 / MONTH_HOURS)
        found: Floats = (1.0 + self.events) / (1.0 / mean + self.hours)
        return found


type Penalty = Callable[[Memory, Market, int, float], Floats]
"""Returns USD per hour that are added to the prices, infinity for a pool that is left out. It is
given what the move of a node costs in USD."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How Leeway requests a fleet. `alone`: Leeway requests the cheapest pool alone, so that EC2
    has no choice."""

    name: str
    penalty: Penalty
    half_life: float = 24.0
    marked: float = MARKED_HOURS
    alone: bool = False


@dataclass(slots=True)
class Result:
    """What a fleet has paid and suffered."""

    interruptions: int = 0
    refusals: int = 0
    usd: float = 0.0
    node_hours: float = 0.0
    moves: float = 0.0

    @property
    def cost(self) -> float:
        """USD per node-hour, with the moves."""
        return (self.usd + self.moves) / self.node_hours

    @property
    def frequency(self) -> float:
        """Interruptions of 100 nodes in a day."""
        return self.interruptions / self.node_hours * 2400


def _wander(dice: np.random.Generator, count: int, hours: float) -> Floats:
    """Return paths of variance 1 that forget their past within these hours."""
    kept = float(np.exp(-STEP_HOURS / hours))
    noise = dice.standard_normal((STEPS, count)) * sqrt(1 - kept * kept)
    paths = np.empty((STEPS, count))
    paths[0] = dice.standard_normal(count)
    for step in range(1, STEPS):
        paths[step] = paths[step - 1] * kept + noise[step]
    return paths


def listed_prices() -> Floats:
    """Return the Spot prices of the pools, in the order of families and zones."""
    catalog = sandbox_catalog()
    markets = catalog.for_node_class(NodeClass()).markets
    by_zone = {one.zone: one.prices for one, _ in markets if one.capacity_type == SPOT}
    prices = [by_zone[zone][catalog.index[f"{one}.xlarge"]] for one in FAMILIES for zone in ZONES]
    if not all(isfinite(price) for price in prices):
        raise ValueError("The sandbox's catalog has no Spot price of one of the pools.")
    return np.array(prices)


def market_of(seed: int, listed: Floats, rate: float, error: float) -> Market:
    """Make a market. Those of a seed differ only in how often pools are reclaimed, and in what EC2
    sees."""
    dice = np.random.default_rng(seed)
    families, zones, pools = len(FAMILIES), len(ZONES), len(listed)
    family, zone = np.repeat(np.arange(families), zones), np.tile(np.arange(zones), families)
    hours = np.arange(STEPS) * STEP_HOURS
    stress: Floats = (
        sqrt(STAYS) * dice.standard_normal(pools)
        + sqrt(OF_FAMILY) * _wander(dice, families, 12.0)[:, family]
        + sqrt(OF_ZONE) * _wander(dice, zones, 12.0)[:, zone]
        + sqrt(OF_POOL) * _wander(dice, pools, 4.0)
        + sqrt(2 * OF_DAY) * np.sin(2 * np.pi * hours / 24)[:, None]
    )
    prices = listed * np.exp(0.1 * _wander(dice, pools, 48.0))
    errors = _wander(dice, pools, 2.0)
    draws, warned = dice.random((STEPS, pools)), dice.random((STEPS, pools))
    hazard = np.exp(STEEPNESS * stress)
    hazard *= rate / MONTH_HOURS / RECLAIMED / hazard.mean()
    return Market(
        prices,
        stress + error * errors if isfinite(error) else errors,
        hazard,
        draws < hazard * STEP_HOURS,
        warned < hazard * STEP_HOURS,
        stress > np.quantile(stress, 0.98, axis=1)[:, None],
    )


def run(market: Market, policy: Policy, per_move: float, nodes: int, seed: int) -> Result:
    """Run a fleet through a market. A node that is interrupted or at its end is replaced at
    once."""
    dice = np.random.default_rng((seed, nodes))
    pools = market.prices.shape[1]
    memory = Memory(policy.half_life, np.zeros(pools), np.zeros(pools), np.zeros(pools))
    place, result = np.full(nodes, -1), Result()
    ends = np.zeros(nodes)
    for step in range(STEPS):
        counts = step >= WARM_UP
        taken = (place >= 0) & market.reclaims[step][place] & (dice.random(nodes) < RECLAIMED)
        used = np.bincount(place[place >= 0], minlength=pools) > 0
        memory.pass_step(used)
        hit = np.bincount(place[taken], minlength=pools) > 0
        memory.events += hit + memory.warned * (used & market.warnings[step])
        memory.out_until[hit] = step + policy.marked / STEP_HOURS
        if counts:
            result.interruptions += int(taken.sum())
            result.moves += per_move * int(taken.sum())
        missing = taken | (ends <= step)
        if missing.any():
            added = policy.penalty(memory, market, step, per_move)
            chosen, refused = _launch(market, policy, memory, step, added)
            place[missing] = chosen
            spans = dice.exponential(LIFETIME_HOURS / STEP_HOURS, nodes)
            ends[missing] = step + spans[missing]
            result.refusals += refused if counts else 0
        if counts:
            result.usd += float(market.prices[step][place].sum()) * STEP_HOURS
            result.node_hours += nodes * STEP_HOURS
    return result


def _launch(
    market: Market, policy: Policy, memory: Memory, step: int, added: Floats
) -> tuple[int, int]:
    """Return the pool that EC2 launches, and how many refuse before it does."""
    costs = market.prices[step] + added
    costs = np.where(memory.out_until > step, inf, costs)
    refused = 0
    while True:
        open_pools = np.flatnonzero(np.isfinite(costs))
        if not len(open_pools):  # all are left out: request all of them rather than none
            open_pools, costs = np.arange(len(costs)), market.prices[step].copy()
        if not policy.alone:
            most = max(1, len(open_pools) // 4)
            open_pools = open_pools[np.argsort(market.seen[step][open_pools])[:most]]
        chosen = int(open_pools[np.argmin(costs[open_pools])])
        if not market.refuses[step][chosen]:
            return chosen, refused
        refused += 1
        costs[chosen] = inf
        memory.events[chosen] += memory.warned
        memory.out_until[chosen] = step + policy.marked / STEP_HOURS


def _nothing(memory: Memory, market: Market, step: int, per_move: float) -> Floats:
    return np.zeros_like(memory.events)


def _money(memory: Memory, market: Market, step: int, per_move: float) -> Floats:
    """The expected cost of moves per hour, at most a fifth of the price."""
    found: Floats = np.minimum(memory.rates() * per_move, 0.2 * market.prices[step])
    return found


def _avoid(memory: Memory, market: Market, step: int, per_move: float) -> Floats:
    """The half of the pools with the highest rates is left out."""
    rates = memory.rates()
    found: Floats = np.where(rates > np.median(rates), inf, 0.0)
    return found


def _known(memory: Memory, market: Market, step: int, per_move: float) -> Floats:
    ahead = slice(step, step + round(LIFETIME_HOURS / STEP_HOURS))
    found: Floats = market.hazard[ahead].mean(axis=0) * RECLAIMED * per_move
    return found


POLICIES = (
    Policy("price-capacity-optimized alone", _nothing, marked=0.0),
    Policy("and 3 minutes without it, as today", _nothing),
    Policy("and 1 hour", _nothing, marked=1.0),
    Policy("and 6 hours", _nothing, marked=6.0),
    Policy("risk as money, half-life 6 h", _money, 6.0),
    Policy("risk as money, half-life 3 days", _money, 72.0),
    Policy("without the riskier half, 6 h", _avoid, 6.0),
    Policy("without the riskier half, 3 days", _avoid, 72.0),
    Policy("the true risk of the next day as money", _known),
    Policy("the same, Leeway chooses alone", _known, alone=True),
)
TODAY = 1


def _difference(ours: list[float], todays: list[float]) -> str:
    """Return by how many percent the mean is more than today's, with the 95 % interval of the
    differences."""
    found = np.array(ours) - np.array(todays)
    scale = 100 / max(float(np.mean(todays)), 1e-12)
    width = 1.96 * float(found.std(ddof=1)) / sqrt(len(found))
    return f"{found.mean() * scale:+.2f} ± {width * scale:.2f}"


def _rows(listed: Floats, rate: float, error: float, per_move: float, nodes: int) -> Iterator[str]:
    results: list[list[Result]] = [[] for _ in POLICIES]
    for seed in range(SEEDS):
        market = market_of(seed, listed, rate, error)
        for policy, found in zip(POLICIES, results, strict=True):
            found.append(run(market, policy, per_move, nodes, seed))
    costs = [[one.cost for one in found] for found in results]
    frequencies = [[one.frequency for one in found] for found in results]
    for at, policy in enumerate(POLICIES):
        moves = np.mean([one.moves / (one.usd + one.moves) for one in results[at]])
        yield (
            f"| {policy.name} | {np.mean(frequencies[at]):.2f} |"
            f" {_difference(frequencies[at], frequencies[TODAY])} |"
            f" {np.mean(costs[at]) * 100:.3f} | {_difference(costs[at], costs[TODAY])} |"
            f" {moves:.2%} |"
        )


def main() -> None:
    """Print a table for each frequency of interruptions, sight of EC2, price of a move and size."""
    listed = listed_prices()
    usual = USUAL.per_pod * PODS
    cases = [(rate, error, usual, NODES) for rate in RATES for error in SIGHT]
    cases += [(rate, "not at all", 10 * usual, NODES) for rate in ("1", "10")]
    cases += [("10", "badly", usual, NODES // 5)]
    for rate, error, per_move, nodes in cases:
        sys.stdout.write(
            f"\n{rate} interruptions a month, EC2 sees {error}, {per_move:.2f} USD for the move of"
            f" a node, {nodes} nodes, {SEEDS} markets of {DAYS} days\n"
            "| policy | interruptions of 100 nodes a day | % more than today |"
            " cents per node-hour | % more than today | of which moves |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        )
        for line in _rows(listed, RATES[rate], SIGHT[error], per_move, nodes):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
