"""Decides whether the functions of a stack can reach the endpoint of a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint of a cluster's API server, by DescribeCluster. `cidrs` limit its public side."""

    cluster: str
    url: str
    vpc: str
    public: bool
    private: bool
    cidrs: tuple[str, ...] = ("0.0.0.0/0",)


@dataclass(frozen=True, slots=True)
class FunctionsNetwork:
    """The network of a stack's functions. `vpcs` are the VPCs of its subnets; outside of a VPC both
    are empty."""

    stack: str
    subnets: tuple[str, ...] = ()
    vpcs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reachability:
    """Whether the endpoint can be reached. `blocker`: it cannot. `warning`: AWS does not tell."""

    blocker: str | None = None
    warning: str | None = None


def reachability(endpoint: Endpoint, functions: FunctionsNetwork) -> Reachability:
    """Decide whether functions in this network can reach the endpoint.

    In the VPC of the cluster they use its private side. Source: EKS user guide, "Cluster API server
    endpoint". Otherwise they use the public side, outside of a VPC from any address of AWS.
    """
    everywhere = _allows_every_ipv4_address(endpoint.cidrs)
    cidrs = ", ".join(endpoint.cidrs) or "no address"
    if not functions.subnets:
        vpc = endpoint.vpc or "its VPC"
        if not endpoint.public:
            return Reachability(
                f"The endpoint of cluster {endpoint.cluster} is private, and the functions of "
                f"stack {functions.stack} run outside of a VPC. Deploy a stack with SubnetIds of "
                f"{vpc}."
            )
        if everywhere:
            return Reachability()
        return Reachability(
            f"The endpoint of cluster {endpoint.cluster} accepts only {cidrs}, and functions "
            "outside of a VPC have no fixed addresses. Deploy a stack with SubnetIds of "
            f"{vpc}, or allow 0.0.0.0/0."
        )
    if endpoint.private and functions.vpcs == {endpoint.vpc}:
        return Reachability()
    if endpoint.public and everywhere:
        return Reachability()
    cause = f"it accepts only {cidrs}" if endpoint.public else f"it is private in {endpoint.vpc}"
    unknown = (
        f"AWS does not tell whether the endpoint of cluster {endpoint.cluster} can be reached from "
        f"the subnets {', '.join(functions.subnets)}: {cause}. Check the log of reconcile after "
        "two minutes."
    )
    return Reachability(warning=unknown)


def _allows_every_ipv4_address(cidrs: Sequence[str]) -> bool:
    networks = [IPv4Network(one) for one in cidrs if ":" not in one]
    return IPv4Network("0.0.0.0/0") in collapse_addresses(networks)
