"""How the reports of a rehearsal word numbers, spreads and losses."""

from collections.abc import Sequence

from leeway_cli.rehearse.rounds import Spread


def losses(lose: Sequence[str]) -> str:
    """Render the options --lose."""
    return ", ".join(lose)


def number(value: float) -> str:
    """Render a number without needless decimals."""
    return f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def price(found: Spread | None, rounds: int) -> str:
    """Render the price of launched nodes."""
    if found is None:
        return "price unknown"
    worst = f"{found.worst:.4f} USD per hour"
    if rounds == 1 or found.median == found.worst:
        return worst
    return f"{found.median:.4f} – {worst}"


def seconds(value: float | None) -> str:
    """Render a duration; None: never."""
    return "never" if value is None else f"{number(value)} s"


def spread(found: Spread | None, rounds: int, unit: str = "") -> str:
    """Render the median and the worst, as one number if they are equal or if there is one round."""
    if found is None:
        return "never"
    worst = f"{number(found.worst)}{unit}"
    if rounds == 1 or number(found.median) == number(found.worst):
        return worst
    return f"{number(found.median)} – {worst}"
