"""Targets of load balancers: whether pods and nodes stay until their connections have ended."""

import json
from collections.abc import Iterator

from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import (
    ClusterFacts,
    Facts,
    NodeTargets,
    PodTargets,
    known,
    spot_of_clusters,
)
from leeway_cli.doctor.finding import About, Finding, aws, shell

ACTS_AFTER = 15
"""Seconds until a deregistration acts: the AWS Load Balancer Controller sees that the pod ends and
deregisters it, and Elastic Load Balancing tells its nodes. Source: the controller's issue 1719,
in which its maintainers and users add up these times."""

NOTICE = 120
"""Seconds from the warning of a Spot interruption until EC2 ends the instance."""

BEGINS_AFTER = 10
"""Seconds of these until Leeway has evicted the pods and excluded the node (docs/storms.md)."""

NODE_FITS = NOTICE - BEGINS_AFTER - ACTS_AFTER - 5
"""The longest deregistration delay, in seconds, of a node that EC2 ends in two minutes."""

INJECT = "elbv2.k8s.aws/pod-readiness-gate-inject"
_DELAY = "deregistration_delay.timeout_seconds"


def check_targets(facts: Facts) -> Iterator[Finding]:
    """Check the target groups of each cluster."""
    spot = {one.cluster for one in spot_of_clusters(facts)}
    for cluster in facts.clusters:
        targets = known(cluster.targets)
        if targets is None:
            continue
        for pods in targets.pods:
            yield from _check_pods(pods, cluster.name, on_spot=cluster.name in spot)
        yield from _check_gates(targets.pods, cluster.name)
        for nodes in targets.nodes:
            yield from _check_wait(nodes, cluster)
        if cluster.name in spot:
            for nodes in (*targets.nodes, *targets.attached):
                yield from _check_notice(nodes, cluster.name)


def _check_pods(pods: PodTargets, cluster: str, *, on_spot: bool) -> Iterator[Finding]:
    """Check that a pod runs until its target group has ended its connections."""
    if pods.sleeps is None:
        return  # its hook does something else, whose time is not known
    needed = pods.delay + ACTS_AFTER
    if pods.sleeps >= needed and pods.grace > pods.sleeps:
        return
    rest = pods.grace - pods.sleeps if pods.grace > pods.sleeps else 30
    hook = f"their preStop hooks sleep {pods.sleeps} s" if pods.sleeps else "they have no preStop"
    said = (
        f"Target group {pods.name} keeps connections to the pods of {pods.workload} in namespace "
        f"{pods.namespace} for {pods.delay} s after it has deregistered one; {hook}, and end "
        f"after {pods.grace} s at the latest."
    )
    fits = max(NOTICE - BEGINS_AFTER - ACTS_AFTER - rest, 0) // 10 * 10
    commands = []
    if on_spot and pods.delay > fits:
        said += f" On Spot nodes two minutes are all that they have: shorten the delay to {fits} s."
        commands.append(_shorten(pods.group, fits))
        needed = fits + ACTS_AFTER
    said += (
        f" They need a preStop sleep of {needed} s, and a terminationGracePeriodSeconds of "
        f"{needed + rest}."
    )
    if pods.container:
        commands.append(_patch(pods, needed, needed + rest))
    about = About(reasons.TARGETS_CUT_OFF, f"{pods.namespace}/{pods.workload}", cluster)
    yield about.warns(said, "\n".join(commands), "pods")


def _patch(pods: PodTargets, sleeps: int, grace: int) -> str:
    """Return the command that gives the pods of a workload the preStop sleep that they need."""
    hook = {"name": pods.container, "lifecycle": {"preStop": {"sleep": {"seconds": sleeps}}}}
    spec = {"terminationGracePeriodSeconds": grace, "containers": [hook]}
    patch = json.dumps({"spec": {"template": {"spec": spec}}}, separators=(",", ":"))
    return shell("kubectl", "patch", pods.workload, f"--namespace={pods.namespace}", "-p", patch)


def _shorten(group: str, seconds: int) -> str:
    return aws(
        "elbv2 modify-target-group-attributes",
        target_group_arn=group,
        attributes=f"Key={_DELAY},Value={seconds}",
    )


def _check_gates(targets: tuple[PodTargets, ...], cluster: str) -> Iterator[Finding]:
    """Check that new pods count as ready only when their load balancer sends to them."""
    without = [one for one in targets if not one.gated]
    for namespace in sorted({one.namespace for one in without}):
        pods = sorted({one.workload for one in without if one.namespace == namespace})
        about = About(reasons.READINESS_GATE_MISSING, f"namespace {namespace}", cluster)
        yield about.warns(
            f"Pods of {', '.join(pods)} in namespace {namespace} are IP targets without a "
            "readiness gate: they count as available, and a drain evicts the next pod, before a "
            f"load balancer sends anything to them. With the label {INJECT} the namespace's new "
            "pods get one.",
            shell("kubectl", "label", "namespace", namespace, f"{INJECT}=enabled"),
            "gate",
        )


def _check_wait(nodes: NodeTargets, cluster: ClusterFacts) -> Iterator[Finding]:
    """Check that an instance runs until the controller's target groups have drained it. An Auto
    Scaling group waits for its own."""
    configuration = known(cluster.configuration)
    if nodes.delay and configuration is not None and not configuration.waits_for_targets:
        yield _of_nodes(nodes, cluster.name).warns(
            f"{_keeps(nodes)}, and without `waitForTargets: true` in the Cluster manifest Leeway "
            "ends the instance as soon as its pods are gone.",
            shell("leeway", "get", f"cluster/{cluster.name}", "--cluster", cluster.name),
            "not awaited",
        )


def _check_notice(nodes: NodeTargets, cluster: str) -> Iterator[Finding]:
    """Check that target groups drain a Spot instance within the two minutes of its warning."""
    if nodes.delay > NODE_FITS:
        yield _of_nodes(nodes, cluster).warns(
            f"{_keeps(nodes)}, and EC2 ends an interrupted Spot instance {NOTICE} s after its "
            f"warning: no wait helps, only a delay of {NODE_FITS} s or less.",
            _shorten(nodes.group, NODE_FITS),
            "longer than the notice",
        )


def _of_nodes(nodes: NodeTargets, cluster: str) -> About:
    return About(reasons.TARGETS_CUT_OFF, f"target group {nodes.name}", cluster)


def _keeps(nodes: NodeTargets) -> str:
    return (
        f"Target group {nodes.name} keeps connections to a node for {nodes.delay} s after it has "
        "deregistered it"
    )
