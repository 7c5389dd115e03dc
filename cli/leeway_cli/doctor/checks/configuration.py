"""What users wrote for a cluster, and the catalog from which nodes are chosen."""

from collections.abc import Iterator
from datetime import timedelta

from leeway.policy.rules import USD_PER_HOUR

from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import ClusterFacts, Facts, known
from leeway_cli.doctor.finding import Finding, fails, warns
from leeway_cli.doctor.mending import aws, shell
from leeway_cli.doctor.names import function_name

CATALOG_OLD_AFTER = timedelta(days=1)
"""refresh_catalog runs every six hours. CatalogNotRefreshedAlarm has the same limit."""

CLOCK_MAY_BE_OFF = timedelta(seconds=5)
"""An offset that is worth a finding: two minutes of a warning are not many of them."""


def check_clusters(facts: Facts) -> Iterator[Finding]:
    """Check the manifests of every cluster."""
    for cluster in facts.clusters:
        configuration = known(cluster.configuration)
        if configuration is None:
            continue
        name, subject = cluster.name, f"cluster {cluster.name}"
        if configuration.paused:
            mend = shell("leeway", "resume", name)
            yield warns(
                reasons.CLUSTER_INACTIVE,
                subject,
                f"Cluster {name} is paused: Leeway begins no voluntary retirement.",
                mend,
                name,
            )
        if configuration.dry_run:
            shown = shell("leeway", "get", f"cluster/{name}", "--cluster", name)
            yield warns(
                reasons.CLUSTER_INACTIVE,
                subject,
                f"Cluster {name} is in dry run: Leeway reports decisions and changes nothing.",
                shown,
                name,
            )
        shown = shell("leeway", "get", "--cluster", name)
        for problem in configuration.problems:
            yield fails(
                reasons.MANIFEST_HAS_ERRORS,
                subject,
                f"{problem}.",
                shown,
                name,
            )


def check_spending(facts: Facts) -> Iterator[Finding]:
    """Check that pools have limits: everybody who may create pods spends by them."""
    for cluster in facts.clusters:
        configuration = known(cluster.configuration)
        if configuration is None:
            continue
        most = spending_limit(configuration.usd_per_hour)
        for pool in configuration.unlimited:
            yield warns(
                reasons.POOL_WITHOUT_LIMITS,
                f"pool {pool}",
                f"Pool {pool} has no spec.limits, so everybody who may create pods can have nodes "
                f"launched until Leeway's nodes of the cluster cost {most}.",
                shell("leeway", "get", f"nodepool/{pool}", "--cluster", cluster.name),
                cluster.name,
            )


def spending_limit(usd_per_hour: float | None) -> str:
    """Say what the nodes of pools may cost together; None is the default."""
    if usd_per_hour is None:
        return f"{USD_PER_HOUR:.2f} USD per hour, the default of spec.launches.usdPerHour"
    return f"{usd_per_hour:.2f} USD per hour (spec.launches.usdPerHour)"


def check_pools(facts: Facts) -> Iterator[Finding]:
    """Check that nodes can be launched from every pool."""
    for cluster in facts.clusters:
        for pool in known(cluster.pools) or ():
            subject, name = f"pool {pool.name}", cluster.name
            if pool.paused is not None:
                yield fails(
                    reasons.POOL_NOT_LAUNCHABLE,
                    subject,
                    f"Leeway launches nothing from pool {pool.name}: {pool.paused}.",
                    shell("leeway", "resume", name, "--pool", pool.name),
                    name,
                )
            if pool.unlaunchable is not None:
                yield fails(
                    reasons.POOL_NOT_LAUNCHABLE,
                    subject,
                    f"Nothing can be launched from pool {pool.name}: {pool.unlaunchable}.",
                    shell("leeway", "get", f"nodepool/{pool.name}", "--cluster", name),
                    name,
                )
            elif not pool.launched and pool.paused is None:
                yield warns(
                    reasons.POOL_NEVER_LAUNCHED,
                    subject,
                    f"No node of pool {pool.name} has ever joined: nobody knows yet whether its "
                    "nodes can.",
                    shell("leeway", "status", "--cluster", name),
                    name,
                )


def check_catalog(facts: Facts) -> Iterator[Finding]:
    """Check that the table has a catalog, and that it is not old."""
    stack, catalog = known(facts.stack), known(facts.catalog)
    if stack is None or catalog is None:
        return
    refresh = aws(
        "lambda invoke",
        function_name=function_name(stack.name, "refresh-catalog"),
        cli_binary_format="raw-in-base64-out",
        payload="{}",
    )
    refresh = refresh and f"{refresh} /dev/stdout"
    subject = f"catalog of {facts.region}"
    if catalog.read_at is None:
        severity = fails if any(_has_pools(one) for one in facts.clusters) else warns
        yield severity(
            reasons.CATALOG_OLD,
            subject,
            f"Table {stack.table} has no catalog of {facts.region} that this version can read.",
            refresh,
        )
        return
    for part, at in sorted(catalog.read_at.items()):
        if facts.now - at > CATALOG_OLD_AFTER:
            hours = round((facts.now - at) / timedelta(hours=1))
            yield warns(
                reasons.CATALOG_OLD,
                subject,
                f"The {part} of the catalog are {hours} h old.",
                refresh,
            )


def _has_pools(cluster: ClusterFacts) -> bool:
    configuration = known(cluster.configuration)
    return configuration is not None and bool(configuration.pools)


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Check the clock of this machine against the dates of AWS's answers."""
    if abs(facts.ahead) > CLOCK_MAY_BE_OFF:
        seconds = round(abs(facts.ahead).total_seconds())
        direction = "behind" if facts.ahead > timedelta(0) else "ahead of"
        yield warns(
            reasons.CLOCK_OFF,
            "clock of this machine",
            f"The clock of this machine is {seconds} s {direction} AWS's. The functions are not "
            "affected; deadlines of `leeway drain` are.",
            "timedatectl set-ntp true",
        )
