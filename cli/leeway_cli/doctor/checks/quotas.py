"""Quotas of the account against the Spot instances that EC2 could interrupt at once.

docs/storms.md derives the figures.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from leeway.reasons import counted

from leeway_cli.doctor import reasons
from leeway_cli.doctor.checks.groups import answered_by_leeway, terminate_hooks
from leeway_cli.doctor.facts import Facts, InstanceUse, known, spot_of_clusters
from leeway_cli.doctor.finding import About, Finding, Severity, aws

SECONDS_OF_RETIREMENT = 4
"""How long a retirement uses one concurrent execution, until it suspends (docs/storms.md)."""

OF_EVERY_MINUTE = 5
"""Functions that run beside retirements: the four of each minute, and receive_notice."""

LATEST_CORDON = 60
"""Seconds. Of the two minutes of a warning, the pods need the rest."""

STARTS_PER_SECOND = 300
"""Starts of durable executions of a region. Source: Lambda developer guide, "Lambda quotas"."""

NOTICED = 10
"""Seconds of delay that are worth a finding."""

TERMINATIONS, TERMINATIONS_PER_SECOND = 100, 5
"""The bucket of TerminateInstances and its refill rate. Source: EC2 developer guide, "Request
throttling for the Amazon EC2 API"."""

NEAR = 0.8
"""The share of a quota whose use is worth a finding."""


@dataclass(frozen=True, slots=True)
class VcpuQuota:
    """The quota of vCPUs of some instance families in one market."""

    code: str
    market: str
    families: re.Pattern[str]
    name: str


def _quota(code: str, market: str, families: str, name: str) -> VcpuQuota:
    return VcpuQuota(code, market, re.compile(rf"(?:{families})\d"), name)


# Source: Service Quotas of EC2; EC2 user guide, "Spot Instance quotas" and "On-Demand Instance
# quotas".
_STANDARD = "a|c|d|h|i|m|r|t|z|is|im"
_ALL = (
    ("L-34B43A08", "L-1216C47A", _STANDARD, "Standard (A, C, D, H, I, M, R, T, Z)"),
    ("L-3819A6DF", "L-DB2E81BA", "g|gr|vt", "G and VT"),
    ("L-7212CCBC", "L-417A185B", "p", "P"),
    ("L-B5D1601B", "L-1945791B", "inf", "Inf"),
    ("L-E3A00192", "L-7295265B", "x", "X"),
    ("L-88CF9481", "L-74FC7D96", "f", "F"),
)
VCPU_QUOTAS = tuple(
    quota
    for spot, on_demand, families, name in _ALL
    for quota in (
        _quota(spot, "spot", families, f"All {name} Spot Instance Requests"),
        _quota(on_demand, "on-demand", families, f"Running On-Demand {name} instances"),
    )
)


def check_concurrency(facts: Facts) -> Iterator[Finding]:
    """Check that Lambda can run enough retirements at once."""
    found, spot = known(facts.concurrency), len(spot_of_clusters(facts))
    if found is None:
        return
    free = found - OF_EVERY_MINUTE
    waves = math.ceil(spot / free) if free > 0 else spot + 1
    seconds = (waves - 1) * SECONDS_OF_RETIREMENT
    if free > 0 and seconds < NOTICED:
        return
    yield About(reasons.QUOTA_TOO_LOW, "Lambda's concurrency").finding(
        Severity.FAILS if free <= 0 or seconds > LATEST_CORDON else Severity.WARNS,
        "The functions of this account without reserved concurrency may run "
        f"{found} at once. If EC2 interrupts all {spot} Spot instances, the last "
        f"node is cordoned about {seconds} s later.",
        _increase("lambda", "L-B99A9384", max(1000, spot + OF_EVERY_MINUTE)),
    )


def check_starts(facts: Facts) -> Iterator[Finding]:
    """Check that Lambda starts enough durable executions a second."""
    spot = len(spot_of_clusters(facts))
    seconds = math.ceil(spot / STARTS_PER_SECOND)
    if seconds >= NOTICED:
        yield About(reasons.QUOTA_TOO_LOW, "starts of durable executions").finding(
            Severity.FAILS if seconds > LATEST_CORDON else Severity.WARNS,
            f"Lambda starts {STARTS_PER_SECOND} durable executions a second. If EC2 interrupts "
            f"all {spot} Spot instances, the last retirement starts about {seconds} s later.",
            aws("service-quotas list-service-quotas", service_code="lambda"),
        )


def check_terminations(facts: Facts) -> Iterator[Finding]:
    """Check that EC2 accepts the terminations of a storm in groups without a terminate hook."""
    hooked: set[str] = set()
    for cluster in facts.clusters:
        groups = known(cluster.groups)
        if groups is None:
            return
        hooked |= {one.name for one in groups if any(map(answered_by_leeway, terminate_hooks(one)))}
    count = sum(bool(one.group) and one.group not in hooked for one in spot_of_clusters(facts))
    if count > TERMINATIONS:
        late = math.ceil((count - TERMINATIONS) / TERMINATIONS_PER_SECOND)
        yield About(reasons.QUOTA_TOO_LOW, "EC2's bucket of TerminateInstances").warns(
            f"{counted(count, 'Spot instance is', 'Spot instances are')} in groups without "
            f"a terminate hook of Leeway. EC2 accepts {TERMINATIONS} terminations at once, then "
            f"{TERMINATIONS_PER_SECOND} a second: the last one is terminated about {late} s later."
        )


def check_vcpus(facts: Facts) -> Iterator[Finding]:
    """Check that the quotas of vCPUs leave room for successors."""
    instances, quotas = known(facts.instances), known(facts.quotas)
    if instances is None or quotas is None:
        return
    names = {one.name for one in facts.clusters}
    for quota in VCPU_QUOTAS:
        counted = [one for one in instances if _counts(one, quota)]
        ours = [one for one in counted if one.cluster in names]
        limit = quotas.get(quota.code)
        if ours and limit is not None:
            yield from _room(quota, limit, sum(one.vcpus for one in counted), ours)


def _counts(one: InstanceUse, quota: VcpuQuota) -> bool:
    return one.market == quota.market and bool(quota.families.match(one.instance_type))


def _room(quota: VcpuQuota, limit: float, used: int, ours: list[InstanceUse]) -> Iterator[Finding]:
    largest = max(ours, key=lambda one: (one.vcpus, one.instance_type))
    about = About(reasons.QUOTA_TOO_LOW, f"quota {quota.name}")
    more = _increase("ec2", quota.code, 2 * max(used, int(limit)))
    use = (
        f"The instances of this account use {used} of {int(limit)} vCPUs of the quota "
        f"`{quota.name}`"
    )
    if used + largest.vcpus > limit:
        yield about.fails(f"{use}, so EC2 launches no {largest.instance_type}.", more)
    elif used > NEAR * limit:
        yield about.warns(f"{use}.", more)


def _increase(service: str, code: str, wanted: int) -> str:
    return aws(
        "service-quotas request-service-quota-increase",
        service_code=service,
        quota_code=code,
        desired_value=wanted,
    )
