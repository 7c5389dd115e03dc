"""What users wrote for a cluster: manifests, pools with the roles of their nodes; the catalog."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from leeway.manifests.in_cluster import KARPENTER_IS_RUNNING, MANIFESTS_HELD
from leeway.policy.rules import USD_PER_HOUR
from leeway.switched import SWITCHED_TO_KARPENTER

from leeway_cli.adopt.settings.leeway_stack import LeewayStack
from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import ClusterFacts, Facts, PoolFacts, RoleFacts, known
from leeway_cli.doctor.finding import About, Finding, Severity, aws, deploy, shell
from leeway_cli.doctor.names import function_name

CATALOG_OLD_AFTER = timedelta(days=1)
"""refresh_catalog runs every six hours. CatalogNotRefreshedAlarm has the same limit."""

CLOCK_MAY_BE_OFF = timedelta(seconds=5)
"""An offset that is worth a finding: two minutes of a warning are not many of them."""


def check_clusters(facts: Facts) -> Iterator[Finding]:
    """Check the manifests of every cluster, and that pools have limits: everybody who may create
    pods spends by them."""
    for cluster in facts.clusters:
        configuration = known(cluster.configuration)
        if configuration is None:
            continue
        name = cluster.name
        inactive = About(reasons.CLUSTER_INACTIVE, f"cluster {name}", name)
        if configuration.paused:
            yield inactive.warns(
                f"Cluster {name} is paused: Leeway begins no voluntary retirement.",
                shell("leeway", "resume", name),
            )
        if configuration.dry_run:
            yield inactive.warns(
                f"Cluster {name} is in dry run: Leeway reports decisions and changes nothing.",
                shell("leeway", "get", f"cluster/{name}", "--cluster", name),
            )
        if (block := known(cluster.launch_block)) is not None:
            code = _BLOCKS[block.code]
            yield About(code, f"cluster {name}", name).warns(
                block.message, shell("leeway", "status", "--cluster", name)
            )
        for problem in configuration.problems:
            about = About(reasons.MANIFEST_HAS_ERRORS, f"cluster {name}", name)
            yield about.fails(f"{problem}.", shell("leeway", "get", "--cluster", name))
        most = spending_limit(configuration.usd_per_hour)
        for pool in configuration.unlimited:
            yield About(reasons.POOL_WITHOUT_LIMITS, f"pool {pool}", name).warns(
                f"Pool {pool} has no spec.limits, so everybody who may create pods can have nodes "
                f"launched until Leeway's nodes of the cluster cost {most}.",
                shell("leeway", "get", "nodepools", "--cluster", name),
            )


_BLOCKS = {one.name: one for one in (KARPENTER_IS_RUNNING, MANIFESTS_HELD, SWITCHED_TO_KARPENTER)}


def spending_limit(usd_per_hour: float | None) -> str:
    """Say what the nodes of pools may cost together; None is the default."""
    if usd_per_hour is None:
        return f"{USD_PER_HOUR:.2f} USD per hour, the default of spec.launches.usdPerHour"
    return f"{usd_per_hour:.2f} USD per hour (spec.launches.usdPerHour)"


def check_pools(facts: Facts) -> Iterator[Finding]:
    """Check that nodes can be launched from every pool, and that its role lets a node join."""
    stack = known(facts.stack)
    for cluster in facts.clusters:
        roles = {one.name: one for one in known(cluster.roles) or ()}
        for pool in known(cluster.pools) or ():
            yield from _check_pool(cluster.name, pool)
            yield from _check_reservations(cluster.name, pool, facts.now)
            if (role := roles.get(pool.role)) is not None:
                yield from _check_role(cluster.name, pool, role, stack)


def _check_pool(cluster: str, pool: PoolFacts) -> Iterator[Finding]:
    about = About(reasons.POOL_NOT_LAUNCHABLE, f"pool {pool.name}", cluster)
    if pool.paused is not None:
        yield about.fails(
            f"Leeway launches nothing from pool {pool.name}: {pool.paused}.",
            shell("leeway", "resume", cluster, "--pool", pool.name),
        )
    if pool.unlaunchable is not None:
        yield about.fails(
            f"Nothing can be launched from pool {pool.name}: {pool.unlaunchable}.",
            shell("leeway", "get", f"nodepool/{pool.name}", "--cluster", cluster),
        )
    elif not pool.launched and pool.paused is None:
        yield About(reasons.POOL_NEVER_LAUNCHED, f"pool {pool.name}", cluster).warns(
            f"No node of pool {pool.name} has ever joined: nobody knows yet whether its nodes can.",
            shell("leeway", "status", "--cluster", cluster),
        )


ENDS_SOON = timedelta(days=7)
"""How long before the end of a reservation the doctor says so."""


def _check_reservations(cluster: str, pool: PoolFacts, now: datetime) -> Iterator[Finding]:
    """Check that what is reserved is used, and does not end unnoticed."""
    look = shell("leeway", "get", f"nodepool/{pool.name}", "--cluster", cluster)
    about = About(reasons.RESERVATION_UNUSED, f"pool {pool.name}", cluster)
    for why in pool.not_used:
        yield about.warns(why, look)
    for one in pool.reservations:
        if one.free == one.total:
            refuses = f"pool {pool.name} does not allow the capacity type reserved"
            why = refuses if pool.not_reserved else f"pool {pool.name} selects it"
            yield about.warns(
                f"Nothing runs in capacity reservation {one.id} ({one.total} {one.instance_type} "
                f"in {one.zone}), which is paid for: {why}.",
                look,
            )
        if one.ends is not None and not pool.not_reserved and one.ends - now < ENDS_SOON:
            then = "its nodes are on-demand from then on"
            if one.capacity.block:
                then = "Leeway drains its nodes before"
            yield About(reasons.RESERVATION_ENDS, f"pool {pool.name}", cluster).warns(
                f"Capacity reservation {one.id} of pool {pool.name} ends at "
                f"{one.ends:%Y-%m-%d %H:%M} UTC: {then}.",
                look,
            )


def check_catalog(facts: Facts) -> Iterator[Finding]:
    """Check that the table has a catalog, and that it is not old."""
    stack, catalog = known(facts.stack), known(facts.catalog)
    if stack is None or catalog is None:
        return
    name = function_name(stack.name, "refresh-catalog")
    raw = {"cli_binary_format": "raw-in-base64-out", "payload": "{}"}
    refresh = aws("lambda invoke", function_name=name, **raw)
    refresh = refresh and f"{refresh} /dev/stdout"
    about = About(reasons.CATALOG_OLD, f"catalog of {facts.region}")
    if not catalog:
        yield about.finding(
            Severity.FAILS if any(map(_has_pools, facts.clusters)) else Severity.WARNS,
            f"Table {stack.table} has no catalog of {facts.region} that this version can read.",
            refresh,
        )
        return
    for part, at in sorted(catalog.items()):
        if facts.now - at > CATALOG_OLD_AFTER:
            hours = round((facts.now - at) / timedelta(hours=1))
            yield about.warns(f"The {part} of the catalog are {hours} h old.", refresh)


def _has_pools(cluster: ClusterFacts) -> bool:
    configuration = known(cluster.configuration)
    return configuration is not None and bool(configuration.pools)


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Check the clock of this machine against the dates of AWS's answers."""
    if abs(facts.ahead) > CLOCK_MAY_BE_OFF:
        seconds = round(abs(facts.ahead).total_seconds())
        direction = "behind" if facts.ahead > timedelta(0) else "ahead of"
        yield About(reasons.CLOCK_OFF, "clock of this machine").warns(
            f"The clock of this machine is {seconds} s {direction} AWS's. The functions are not "
            "affected; deadlines of `leeway drain` are.",
            "timedatectl set-ntp true",
        )


_PULLS = ("AmazonEC2ContainerRegistryPullOnly", "AmazonEC2ContainerRegistryReadOnly")
_NEEDED = (
    (("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"), "kubelet cannot join"),
    (_PULLS, "nodes cannot pull images from ECR"),
)
"""Managed policies of which a node's role needs one. Source: EKS user guide, "Amazon EKS node IAM
role"."""


def _check_role(
    cluster: str, pool: PoolFacts, role: RoleFacts, stack: LeewayStack | None
) -> Iterator[Finding]:
    """Check that the role of a pool exists, may be passed, and lets a node join."""
    about = About(reasons.POOL_NOT_LAUNCHABLE, f"role {role.name}", cluster)
    if not role.exists:
        yield about.fails(
            f"IAM has no role {role.name}, which pool {pool.name} names.",
            aws("iam get-role", role_name=role.name),
        )
        return
    named = [arn.rpartition("/")[2] for arn in stack.node_roles] if stack else []
    if stack is not None and role.name not in named:
        given = ",".join((*stack.node_roles, role.arn))
        yield about.fails(
            f"The parameter NodeRoleArns of stack {stack.name} does not name role {role.name} "
            f"of pool {pool.name}, so Leeway may launch no node with it.",
            deploy(stack, NodeRoleArns=given),
        )
    for policies, effect in _NEEDED:
        if not role.policies.intersection(policies):
            arn = _managed(role, policies[0])
            yield about.warns(
                f"Role {role.name} of pool {pool.name} has no managed policy {policies[0]}: "
                f"{effect} unless another policy grants the same.",
                aws("iam attach-role-policy", role_name=role.name, policy_arn=arn),
            )


def _managed(role: RoleFacts, policy: str) -> str:
    """Return the ARN of a policy that AWS manages, in the partition of a role."""
    partition = role.arn.split(":")[1]
    return f"arn:{partition}:iam::aws:policy/{policy}"
