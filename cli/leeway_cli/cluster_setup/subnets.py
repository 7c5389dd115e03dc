"""The subnets of Leeway's functions, by boto3's EC2 client."""

from collections.abc import Callable
from typing import Any

from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.cluster_setup.reachability import FunctionsNetwork


def functions_network(stack: LeewayStack, ec2: Callable[[], Any]) -> FunctionsNetwork:
    """Read the network of a stack's functions, by DescribeSubnets if they run in a VPC. `ec2` makes
    boto3's client, whose errors it raises."""
    if not stack.subnets:
        return FunctionsNetwork(stack.name)
    found = ec2().describe_subnets(SubnetIds=list(stack.subnets))["Subnets"]
    return FunctionsNetwork(stack.name, stack.subnets, frozenset(one["VpcId"] for one in found))
