"""The Spot instances that EC2 could interrupt at once."""

from leeway_cli.doctor.facts import Facts, InstanceUse, known


def spot_of_clusters(facts: Facts) -> tuple[InstanceUse, ...]:
    """Return the Spot instances of the clusters that were read."""
    names = {one.name for one in facts.clusters}
    return tuple(
        one for one in known(facts.instances) or () if one.market == "spot" and one.cluster in names
    )


def spot_instances(facts: Facts) -> int:
    """Count the Spot instances of the clusters that were read."""
    return len(spot_of_clusters(facts))
