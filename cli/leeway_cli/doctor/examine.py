"""Makes all checks of facts."""

from collections.abc import Callable, Iterator

from leeway_cli.doctor.checks.configuration import (
    check_catalog,
    check_clock,
    check_clusters,
    check_pools,
    check_spending,
)
from leeway_cli.doctor.checks.groups import check_groups
from leeway_cli.doctor.checks.hooks import check_hooks
from leeway_cli.doctor.checks.node_roles import check_node_roles
from leeway_cli.doctor.checks.probes import check_answers
from leeway_cli.doctor.checks.quotas import (
    check_concurrency,
    check_starts,
    check_terminations,
    check_vcpus,
)
from leeway_cli.doctor.checks.second_handlers import (
    check_managed_groups,
    check_other_rules,
    check_workloads,
)
from leeway_cli.doctor.checks.setup import check_endpoints, check_rights, check_setup
from leeway_cli.doctor.checks.stack import check_aliases, check_functions, check_stack
from leeway_cli.doctor.checks.triggers import (
    check_alarms,
    check_consumers,
    check_failures,
    check_rules,
    check_schedules,
)
from leeway_cli.doctor.checks.unread import check_unread
from leeway_cli.doctor.facts import Facts
from leeway_cli.doctor.finding import Finding, Severity

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_unread,
    check_stack,
    check_functions,
    check_aliases,
    check_rules,
    check_schedules,
    check_consumers,
    check_failures,
    check_alarms,
    check_concurrency,
    check_starts,
    check_terminations,
    check_vcpus,
    check_catalog,
    check_clock,
    check_setup,
    check_rights,
    check_endpoints,
    check_answers,
    check_groups,
    check_hooks,
    check_workloads,
    check_managed_groups,
    check_other_rules,
    check_clusters,
    check_pools,
    check_spending,
    check_node_roles,
)

_ORDER = {Severity.FAILS: 0, Severity.WARNS: 1}


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Return the findings: failures first, and of each severity in the order of the checks."""
    found = dict.fromkeys(finding for check in CHECKS for finding in check(facts))
    return tuple(sorted(found, key=lambda one: _ORDER[one.severity]))
