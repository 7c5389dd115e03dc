"""Puts together the launch of nodes."""

from collections.abc import Collection
from functools import partial
from uuid import uuid4

from leeway.aws.ec2 import Ec2Instances
from leeway.aws.fleets import Ec2Fleets
from leeway.aws.images import AwsImages
from leeway.aws.instance_profiles import IamInstanceProfiles
from leeway.aws.launch_templates import Ec2LaunchTemplates
from leeway.aws.networks import Ec2Networks
from leeway.aws.node_clusters import EksNodeClusters
from leeway.aws.pool_records import DynamoPoolRecords
from leeway.aws.records import DynamoRecords
from leeway.catalog.unavailable import UnavailableOfferings
from leeway.launch.launch_nodes import LaunchNodes
from leeway.launch.launch_run import LaunchDependencies
from leeway.launch.resolve_pools import NodeSources
from leeway.ports.functions import AdmitNode
from leeway.wiring.clients import LIST_READ_TIMEOUT, client, clock, table


def node_sources(managed: Collection[str] = ()) -> NodeSources:
    """Build the ports that are read for nodes. `managed` are the clusters of the stack: their node
    roles are not used for other clusters. A person may know and read one cluster only."""
    return NodeSources(
        networks=Ec2Networks(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
        images=AwsImages(
            partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT), partial(client, "ssm")
        ),
        profiles=IamInstanceProfiles(partial(client, "iam"), clock()),
        clusters=EksNodeClusters(partial(client, "eks"), clock(), managed),
    )


def launch_nodes(name: str, admit_node: AdmitNode, managed: Collection[str] = ()) -> LaunchNodes:
    """Build the use case on a table; `admit_node` starts the admissions."""
    return LaunchNodes(
        LaunchDependencies(
            sources=node_sources(managed),
            templates=Ec2LaunchTemplates(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
            fleets=Ec2Fleets(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
            table=table(name=name),
            offerings=UnavailableOfferings(table()),
            pools=DynamoPoolRecords(partial(client, "dynamodb"), name),
            admissions=DynamoRecords(partial(client, "dynamodb"), name),
            admit_node=admit_node,
            instances=Ec2Instances(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
            clock=clock(),
            new_id=lambda: uuid4().hex,
        )
    )
