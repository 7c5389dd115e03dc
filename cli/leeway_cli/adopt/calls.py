"""The AWS or Kubernetes call of a change, as a plan shows it."""

from typing import assert_never

from leeway.kubernetes.connection import FIELD_MANAGER

from leeway_cli.cluster_setup.difference import Change
from leeway_cli.cluster_setup.settings import (
    STANDARD,
    AccessEntry,
    Authentication,
    ClusterManifest,
    ClusterObject,
    GroupHook,
    GroupTag,
    ManagedCluster,
    Setting,
    SpotRole,
)


def call_of(cluster: str, change: Change) -> str:
    """Return the call with its most important parameters: `eks:CreateAccessEntry …`."""
    if change.after is None:
        return _removal(cluster, change.setting)
    return _write(cluster, change.after, is_new=change.before is None)


def _write(cluster: str, after: Setting, *, is_new: bool) -> str:
    match after:
        case Authentication(mode=mode):
            return f"eks:UpdateClusterConfig name={cluster} authenticationMode={mode}"
        case AccessEntry(principal=principal, type=kind, groups=groups):
            call = "CreateAccessEntry" if is_new else "UpdateAccessEntry"
            has = f"kubernetesGroups={','.join(sorted(groups))}"
            given = has if kind == STANDARD else f"type={kind}"
            return f"eks:{call} clusterName={cluster} principalArn={principal} {given}"
        case ClusterObject(path=path):
            return f"PATCH {path}?fieldManager={FIELD_MANAGER}&force=true (server-side apply)"
        case GroupTag(group=group, tag=tag, value=value, propagated=propagated):
            return (
                f"autoscaling:CreateOrUpdateTags ResourceId={group} Key={tag} Value={value} "
                f"PropagateAtLaunch={str(propagated).lower()}"
            )
        case GroupHook():
            return (
                f"autoscaling:PutLifecycleHook AutoScalingGroupName={after.group} "
                f"LifecycleHookName={after.name} LifecycleTransition={after.transition} "
                f"HeartbeatTimeout={after.timeout} DefaultResult={after.default}"
            )
        case ClusterManifest():
            return f"dynamodb:PutItem pk=MANIFESTS#{cluster} sk=cluster.leeway.sh#/{cluster}"
        case ManagedCluster(stack=stack):
            return _update_stack(stack, f"add {cluster} to")
        case SpotRole():
            return "iam:CreateServiceLinkedRole AWSServiceName=spot.amazonaws.com"
    assert_never(after)


def _removal(cluster: str, before: Setting) -> str:
    match before:
        case AccessEntry(principal=principal):
            return f"eks:DeleteAccessEntry clusterName={cluster} principalArn={principal}"
        case ClusterObject(path=path):
            return f"DELETE {path}"
        case GroupTag(group=group, tag=tag):
            return f"autoscaling:DeleteTags ResourceId={group} Key={tag}"
        case GroupHook(group=group, name=name):
            return (
                f"autoscaling:DeleteLifecycleHook AutoScalingGroupName={group} "
                f"LifecycleHookName={name}"
            )
        case ClusterManifest():
            return f"dynamodb:DeleteItem pk=MANIFESTS#{cluster} sk=cluster.leeway.sh#/{cluster}"
        case ManagedCluster(stack=stack):
            return _update_stack(stack, f"remove {cluster} from")
        case Authentication() | SpotRole():
            raise ValueError(f"release never removes the {before.title}")
    assert_never(before)


def _update_stack(stack: str, change: str) -> str:
    return (
        f"cloudformation:UpdateStack StackName={stack} UsePreviousTemplate=true ({change} "
        "ClusterNames; every other parameter keeps its value)"
    )
