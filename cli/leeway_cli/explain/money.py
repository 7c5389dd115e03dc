"""Prices of nodes for a terminal and as JSON."""

from typing import Any

from leeway.disruption.explain import MONTH_HOURS, Cost

CENT = 0.005
"""Half a cent, in USD."""


def price_as_data(per_hour: float | None, name: str = "price") -> dict[str, float | None]:
    """Render an amount in USD per hour as two fields, per hour and per month of 730 hours."""
    if per_hour is None:
        return {f"{name}PerHour": None, f"{name}PerMonth": None}
    month = round(per_hour * MONTH_HOURS, 2)
    return {f"{name}PerHour": round(per_hour, 6), f"{name}PerMonth": month}


def cost_as_data(cost: Cost) -> dict[str, Any]:
    """Render the cost of some nodes."""
    return {
        "nodes": cost.nodes,
        **price_as_data(cost.per_hour),
        "nodesWithoutPrice": cost.without_price,
    }


def money(per_hour: float | None) -> str:
    """Render an amount in USD per hour for a terminal."""
    if per_hour is None:
        return "price unknown"
    return f"{per_hour:.4f} USD per hour, {per_hour * MONTH_HOURS:,.2f} a month"


def saves(per_hour: float) -> str:
    """Render what is saved, as a part of a sentence; savings below a cent a month are none."""
    if abs(per_hour) * MONTH_HOURS < CENT:
        return "saves nothing"
    return f"{'saves' if per_hour > 0 else 'costs'} {money(abs(per_hour))}"


def counted(number: int, noun: str) -> str:
    """Render a number of things: `1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cost_text(cost: Cost) -> str:
    """Render the cost of some nodes for a terminal."""
    unknown = f", without the {cost.without_price} of unknown price" if cost.without_price else ""
    return f"{counted(cost.nodes, 'node')}: {money(cost.per_hour)}{unknown}"
