"""Runs all measurements, or those of the command line, and prints a table of each.

`storms=1000` runs one storm of this size; `rehearse=8` compares this number of random clusters,
`rehearse --only c37,c47` these; `day=5` simulates this number of days, each with another seed.
"""

import re
import sys

from bench import (
    catalog,
    day,
    day_gap,
    depths,
    drains,
    functions,
    give_back,
    headroom,
    idle,
    integer_bound,
    kubernetes,
    linear_programs,
    nodes,
    packing,
    provision,
    provision_memory,
    provision_read,
    rehearsals,
    returns,
    roll,
    scale,
    spot_risk,
    storm_calls,
    storms,
    warmth,
)

BENCHES = {
    "catalog": catalog.main,
    "day": day.main,
    "day-gap": day_gap.main,
    "depths": depths.main,
    "drains": drains.main,
    "functions": functions.main,
    "give-back": give_back.main,
    "headroom": headroom.main,
    "idle": idle.main,
    "integer-bound": integer_bound.main,
    "kubernetes": kubernetes.main,
    "linear-programs": linear_programs.main,
    "nodes": nodes.main,
    "packing": packing.main,
    "packing-curves": packing.curves,
    "provision": provision.main,
    "provision-memory": provision_memory.main,
    "provision-read": provision_read.main,
    "rehearse": rehearsals.main,
    "returns": returns.main,
    "roll": roll.main,
    "scale": scale.main,
    "spot-risk": spot_risk.main,
    "storm-calls": storm_calls.main,
    "storms": storms.main,
    "warmth": warmth.main,
}

EVERY = [name for name in BENCHES if name not in {"packing-curves", "integer-bound"}]
"""`packing` prints the curves, too; `integer-bound` takes half an hour."""

RANDOM_CLUSTERS = re.compile(r"c?[0-9]+(,c?[0-9]+)*")


def main(names: list[str]) -> int:
    """Run the named measurements (default: all). Return 2 for an unknown name."""
    if names[:2] == ["rehearse", "--only"]:
        return _rehearse_only(",".join(names[2:]))
    requested = [name.partition("=") for name in names or EVERY]
    sized = {"storms": storms.main, "rehearse": rehearsals.main, "day": day.main}
    unknown = [
        name + equals + size
        for name, equals, size in requested
        if name not in BENCHES or (equals and not (name in sized and size.isdigit()))
    ]
    if unknown:
        sys.stderr.write(f"bench: unknown measurement: {', '.join(unknown)}; expected one of ")
        sys.stderr.write(f"{', '.join(BENCHES)}\n")
        return 2
    for name, _, size in requested:
        if size:
            sized[name](int(size))
        else:
            BENCHES[name]()
    return 0


def _rehearse_only(clusters: str) -> int:
    if not RANDOM_CLUSTERS.fullmatch(clusters):
        sys.stderr.write(f"bench: rehearse --only: expected c37,c47 …, got {clusters!r}\n")
        return 2
    seeds = dict.fromkeys(int(one.removeprefix("c")) for one in clusters.split(","))
    rehearsals.compare_clusters(list(seeds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
