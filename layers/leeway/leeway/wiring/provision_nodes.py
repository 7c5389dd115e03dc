"""Builds `provision_nodes`."""

from functools import cache, partial

from leeway import manifest_run
from leeway.aws.autoscaling import AutoScalingMembers
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.provision_queue import SqsMessageVisibility, SqsProvisionNodes
from leeway.catalog.stored import StoredCatalog
from leeway.catalog.unavailable import UnavailableOfferings
from leeway.disruption import return_capacity as returning
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.kubernetes.custom_resources import HttpClusterApi
from leeway.kubernetes.events import write_event
from leeway.kubernetes.transport import within
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.manifest_run import ManifestRun
from leeway.manifests.in_cluster import Copied, ManifestCopies, launch_block
from leeway.provision_run import Dependencies, NodeProvisioning
from leeway.provisioning.cluster_state import ClusterStates
from leeway.provisioning.receive_messages import MessageReceiver
from leeway.provisioning.report import ProvisioningTelemetry
from leeway.provisioning.upcoming import UpcomingPods
from leeway.wiring.clients import (
    FAIL_FAST_TRIES,
    LIST_READ_TIMEOUT,
    client,
    clock,
    configuration,
    logger,
    metrics,
    prepare,
    session,
    settings,
    table,
)
from leeway.wiring.clusters import connections, on_connections
from leeway.wiring.launch_nodes import launch_nodes, node_sources
from leeway.wiring.notices import admissions, retirements

_cluster_api = on_connections(HttpClusterApi)


def _queue() -> SqsProvisionNodes:
    return SqsProvisionNodes(partial(client, "sqs"), settings().provision_queue)


def _return_capacity() -> returning.ReturnCapacity:
    return returning.ReturnCapacity(
        returning.Dependencies(
            offerings=UnavailableOfferings(table()),
            table=table(),
            retire_node=retirements(),
            provision_nodes=_queue(),
            sources=node_sources(),
            clock=clock(),
        )
    )


def dependencies(states: ClusterStates) -> Dependencies:
    """Build the ports of provisioning on the stack of the environment, with these clusters."""
    return Dependencies(
        manifests=configuration(),
        catalog=StoredCatalog(table(), str(session().region_name), clock()),
        states=states,
        launch_nodes=launch_nodes(
            settings().table, admit_node=admissions(), managed=settings().clusters
        ),
        table=table(),
        groups=Ec2Instances(partial(client, "ec2", read_timeout=LIST_READ_TIMEOUT)),
        lifecycle_states=AutoScalingMembers(
            partial(client, "autoscaling", tries=FAIL_FAST_TRIES)
        ).lifecycle_states,
        upcoming=UpcomingPods(configuration(), table(), on_connections(HttpWorkloads)),
        returns=_return_capacity(),
        events_in=on_connections(partial(partial, write_event)),
        launch_block=partial(launch_block, table(), _cluster_api),
        clock=clock(),
    )


_COPY_WITHIN = 5.0
"""Seconds: pods wait. If custom resources take longer, for example because of a conversion webhook,
the last known manifests apply, and `reconcile` copies."""


def _copy(cluster: str) -> Copied | None:
    with within(_COPY_WITHIN):
        return ManifestCopies(table(), _cluster_api, clock()).copy(cluster)


def _manifest_run() -> ManifestRun:
    states = KubernetesClusterStates(connections().get, clock())
    return ManifestRun(
        manifest_run.Dependencies(
            run=NodeProvisioning(dependencies(states)).run,
            copy=_copy,
            manifests=configuration(),
            open_cluster=_cluster_api,
            within=within,
            sources=node_sources(settings().clusters),
            table=table(),
            clock=clock(),
        )
    )


@cache
def provision_nodes() -> MessageReceiver:
    """Build the receiver of messages with the use case."""
    return MessageReceiver(
        _manifest_run().run,
        SqsMessageVisibility(partial(client, "sqs"), settings().provision_queue),
        _queue(),
        frozenset(settings().clusters),
        ProvisioningTelemetry(logger(), metrics()),
        clock(),
    )


prepare(
    ["dynamodb", "eks", "iam", "lambda", "sqs", "ssm"],
    [],
    fail_fast=["dynamodb"],
    listing=["ec2"],
)
