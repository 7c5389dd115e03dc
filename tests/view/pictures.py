"""Pictures of a cluster for the tests of the page."""

from typing import Any

from leeway_cli.view.picture import LogLine, Node, Picture, Pod, Step, Totals, Without
from msgspec.structs import replace

AT = 1_795_450_000.0
GIB = 2**30
HOSTILE = '<img src=x onerror="alert(1)">'


def node(owner: str = "pool web", **given: Any) -> Node:
    """A node of 8 vCPUs."""
    base: dict[str, Any] = {
        "created_at": AT - 3600,
        "cpu": (4000, 8000),
        "memory": (8 * GIB, 32 * GIB),
        "pods": (2, 58),
        "instance": "i-00000000000000001",
        "instance_type": "m5.2xlarge",
        "capacity_type": "spot",
        "zone": "us-east-1a",
        "ready": True,
        "price": 0.1535,
        "others": 3,
        "gpus": (0, 0),
    }
    return Node(owner, **base | given)


def totals(**given: Any) -> Totals:
    """Totals of two nodes."""
    base: dict[str, Any] = {
        "nodes": 2,
        "pods": 2,
        "waiting": 1,
        "cpu": 0.5,
        "memory": 0.25,
        "price": 0.307,
        "without_price": 0,
        "saving": 0.1535,
        "complete": False,
    }
    return Totals(**base | given)


PICTURE = Picture(
    at=AT,
    cluster="prod",
    totals=totals(),
    nodes={
        "ip-10-0-0-1.ec2.internal": node(),
        "ip-10-0-0-2.ec2.internal": node("pool batch", fate="kept", next="kept: PodIsBlocked"),
    },
    pods={
        "shop/web-1": Pod("ip-10-0-0-1.ec2.internal", 2000, GIB),
        "shop/web-2": Pod("ip-10-0-0-1.ec2.internal", 1000, GIB),
        "shop/web-3": Pod("", 1000, GIB),
    },
    plan=(
        Step(
            None,
            ("ip-10-0-0-1.ec2.internal",),
            "Underutilized",
            "PodsFitElsewhere",
            f"The pods of {HOSTILE} fit on other nodes.",
            2,
            0.1535,
            (),
        ),
    ),
    without=(Without(3, ("shop/web-3",), "RequestTooLarge", f"No type has room. {HOSTILE}"),),
    log=(LogLine(AT - 60, "reconcile", "INFO", "", "", f"Read the cluster {HOSTILE}."),),
    prices=((AT - 60, 0.4), (AT, 0.307)),
)


def later(picture: Picture, seconds: float, **given: Any) -> Picture:
    """Return a picture some seconds later, with some fields that have changed."""
    return replace(picture, at=picture.at + seconds, **given)
