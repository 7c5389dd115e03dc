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
            yield warns(reasons.CLUSTER_PAUSED, subject, mend, name)
        if configuration.dry_run:
            shown = shell("leeway", "get", f"cluster/{name}", "--cluster", name)
            yield warns(reasons.CLUSTER_IN_DRY_RUN, subject, shown, name)
        shown = shell("leeway", "get", "--cluster", name)
        for problem in configuration.problems:
            facts_ = {"problem": problem.rstrip(".")}
            yield fails(reasons.MANIFEST_HAS_ERRORS, subject, shown, name, **facts_)


def check_spending(facts: Facts) -> Iterator[Finding]:
    """Check that pools have limits: everybody who may create pods spends by them."""
    for cluster in facts.clusters:
        configuration = known(cluster.configuration)
        for pool in configuration.unlimited if configuration is not None else ():
            yield warns(
                reasons.POOL_WITHOUT_LIMITS,
                f"pool {pool}",
                shell("leeway", "get", f"nodepool/{pool}", "--cluster", cluster.name),
                cluster.name,
                pool=pool,
                most=spending_limit(configuration.usd_per_hour) if configuration else "",
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
                    reasons.POOL_IS_PAUSED,
                    subject,
                    shell("leeway", "resume", name, "--pool", pool.name),
                    name,
                    pool=pool.name,
                    problem=pool.paused.message.rstrip("."),
                )
            if pool.unlaunchable is not None:
                yield fails(
                    reasons.POOL_NOT_LAUNCHABLE,
                    subject,
                    shell("leeway", "get", f"nodepool/{pool.name}", "--cluster", name),
                    name,
                    pool=pool.name,
                    problem=pool.unlaunchable.message.rstrip("."),
                )
            elif not pool.launched and pool.paused is None:
                yield warns(
                    reasons.POOL_NEVER_LAUNCHED,
                    subject,
                    shell("leeway", "status", "--cluster", name),
                    name,
                    pool=pool.name,
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
            reasons.CATALOG_ABSENT, subject, refresh, table=stack.table, region=facts.region
        )
        return
    for part, at in sorted(catalog.read_at.items()):
        if facts.now - at > CATALOG_OLD_AFTER:
            hours = round((facts.now - at) / timedelta(hours=1))
            yield warns(reasons.CATALOG_OLD, subject, refresh, part=part, age=f"{hours} h")


def _has_pools(cluster: ClusterFacts) -> bool:
    configuration = known(cluster.configuration)
    return configuration is not None and bool(configuration.pools)


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Check the clock of this machine against the dates of AWS's answers."""
    if abs(facts.ahead) > CLOCK_MAY_BE_OFF:
        yield warns(
            reasons.CLOCK_OFF,
            "clock of this machine",
            "timedatectl set-ntp true",
            seconds=round(abs(facts.ahead).total_seconds()),
            direction="behind" if facts.ahead > timedelta(0) else "ahead of",
        )
