"""Whether the functions of a stack can reach the endpoint of a cluster."""

from dataclasses import replace

import pytest
from leeway_cli.cluster_setup.reachability import Endpoint, FunctionsNetwork, reachability

PUBLIC = Endpoint("prod", "https://x.eks.amazonaws.com", "vpc-1", public=True, private=False)
PRIVATE = replace(PUBLIC, public=False, private=True)
OUTSIDE = FunctionsNetwork("leeway")
INSIDE = FunctionsNetwork("leeway", ("subnet-1",), frozenset({"vpc-1"}))
ELSEWHERE = FunctionsNetwork("leeway", ("subnet-2",), frozenset({"vpc-2"}))


@pytest.mark.parametrize(
    ("endpoint", "functions", "blocker", "warning"),
    [
        (PUBLIC, OUTSIDE, "", ""),
        (replace(PUBLIC, cidrs=("0.0.0.0/1", "128.0.0.0/1", "::/0")), OUTSIDE, "", ""),
        (replace(PUBLIC, cidrs=("203.0.113.0/24",)), OUTSIDE, "accepts only", ""),
        (replace(PUBLIC, cidrs=("::/0",)), OUTSIDE, "accepts only", ""),
        (PRIVATE, OUTSIDE, "is private, and the functions of stack", ""),
        (PRIVATE, INSIDE, "", ""),
        (PRIVATE, ELSEWHERE, "", "AWS does not tell whether"),
        (PUBLIC, ELSEWHERE, "", ""),
        (replace(PUBLIC, cidrs=("203.0.113.0/24",)), INSIDE, "", "AWS does not tell whether"),
    ],
)
def test_reachability(
    endpoint: Endpoint, functions: FunctionsNetwork, blocker: str, warning: str
) -> None:
    found = reachability(endpoint, functions)

    assert bool(found.blocker) == bool(blocker)
    assert blocker in (found.blocker or "")
    assert bool(found.warning) == bool(warning)
    assert warning in (found.warning or "")
