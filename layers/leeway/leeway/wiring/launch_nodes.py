"""Puts together the launch of nodes."""

from collections.abc import Collection
from functools import partial
from uuid import uuid4

from leeway.aws.ec2 import Ec2Instances
from leeway.aws.fleets import Ec2Fleets, Ec2LaunchTemplates
from leeway.aws.node_sources import (
    AwsImages,
    Ec2CapacityReservations,
    Ec2Networks,
    EksNodeClusters,
    IamInstanceProfiles,
)
from leeway.catalog.unavailable import UnavailableOfferings
from leeway.launch.intent import INTENT, LaunchIntent
from leeway.launch.launch_nodes import LaunchNodes
from leeway.launch.launch_run import LaunchDependencies
from leeway.launch.resolve_pools import NodeSources
from leeway.ports.functions import AdmitNode
from leeway.table import Record
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
        reservations=Ec2CapacityReservations(
            partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)
        ),
    )


def launch_nodes(
    name: str,
    intents: Record[LaunchIntent] = INTENT,
    admit_node: AdmitNode | None = None,
    managed: Collection[str] = (),
) -> LaunchNodes:
    """Build the use case on a table. `intents` is the kind of intents that it writes; without
    `admit_node`, reconcile starts the admissions."""
    return LaunchNodes(
        LaunchDependencies(
            sources=node_sources(managed),
            templates=Ec2LaunchTemplates(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
            fleets=Ec2Fleets(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
            table=table(name=name),
            intents=intents,
            offerings=UnavailableOfferings(table(name=name)),
            admit_node=admit_node,
            instances=Ec2Instances(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
            clock=clock(),
            new_id=lambda: uuid4().hex,
        )
    )
