"""What `leeway adopt` sets in EKS, in the cluster and on its groups: differences are findings."""

from collections.abc import Callable, Iterator

from leeway.headroom.pause_pods import NAMESPACE
from leeway.headroom.reconciler import BUFFER_ROLE, TARGET_ROLE
from leeway.retirement.surge import GROUPS as SURGE_GROUPS
from leeway.retirement.surge import ROLE as SURGE_ROLE

from leeway_cli.adopt.changes import Change, Setting, Wanted, by_key, desired_settings, difference
from leeway_cli.adopt.reachability import reachability
from leeway_cli.adopt.settings.access import AccessEntry, Authentication
from leeway_cli.adopt.settings.groups import GroupHook, GroupTag
from leeway_cli.adopt.settings.leeway_stack import LeewayStack, ManagedCluster, version_difference
from leeway_cli.adopt.settings.objects import ClusterObject, is_limited, policies_missing
from leeway_cli.adopt.settings.spot_role import SpotRole
from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import ClusterFacts, Facts, known
from leeway_cli.doctor.finding import About, Finding, Severity, aws, shell
from leeway_cli.doctor.rights import Right

_RBAC = frozenset({"ClusterRole", "ClusterRoleBinding", "RoleBinding"})


def check_setup(facts: Facts) -> Iterator[Finding]:
    """Compare what was read of every cluster with what Leeway needs."""
    stack = known(facts.stack)
    if stack is None:
        return
    if reason := version_difference(stack, facts.wanted_objects):
        yield About(reasons.VERSIONS_DIFFER, f"stack {stack.name}").fails(reason)
    for cluster in facts.clusters:
        if known(cluster.policies) is False:
            yield from _without_policies(cluster)
        yield from _differences(facts, stack, cluster)


def _without_policies(cluster: ClusterFacts) -> Iterator[Finding]:
    code, name = reasons.POLICIES_MISSING, cluster.name
    update = aws("eks update-cluster-version", name=name, kubernetes_version="1.30")
    yield About(code, f"cluster {name}", name).warns(policies_missing(name), update)
    for one in known(cluster.objects) or ():
        if one.kind in _RBAC and is_limited(one):
            yield About(code, one.title, name).fails(
                f"{one.title} lets leeway:headroom write any Deployment or priority class: cluster "
                f"{name} has no admission policy that limits it.",
                shell("kubectl", "delete", "--filename", "rbac/admission.yaml"),
            )


def _differences(facts: Facts, stack: LeewayStack, cluster: ClusterFacts) -> Iterator[Finding]:
    groups = [one for one in known(cluster.groups) or () if not one.node_group]
    wanted = Wanted(
        cluster.name,
        stack,
        facts.wanted_in(cluster),
        tuple(sorted(one.name for one in groups)),
        tuple(one.arn for one in known(cluster.roles) or () if one.arn),
    )
    was_read = _read_kinds(facts, cluster)
    desired = [one for one in desired_settings(wanted) if was_read(one)]
    found = difference(cluster.name, desired, by_key(*_current(facts, stack, cluster)))
    adopt = shell("leeway", "adopt", cluster.name)
    for step in found.steps:
        about = About(reasons.CLUSTER_SETTING_DIFFERS, step.change.title, cluster.name)
        yield about.finding(_severity(step.change, cluster), step.reason, adopt)
    about = About(reasons.CLUSTER_SETTING_DIFFERS, f"cluster {cluster.name}", cluster.name)
    yield from map(about.fails, found.blockers)


def _read_kinds(facts: Facts, cluster: ClusterFacts) -> Callable[[Setting], bool]:
    """Return whether the current value of a setting was read. Cluster manifests are no part: the
    defaults apply without one."""
    kinds: tuple[type[Setting], ...] = (ManagedCluster,)
    if known(facts.spot_role) is not None:
        kinds += (SpotRole,)
    if known(cluster.eks) is not None:
        kinds += (Authentication,)
    if known(cluster.entries) is not None:
        kinds += (AccessEntry,)
    if known(cluster.objects) is not None:
        kinds += (ClusterObject,)
    if known(cluster.groups) is not None:
        kinds += (GroupTag, GroupHook)
    return lambda setting: isinstance(setting, kinds)


def _current(facts: Facts, stack: LeewayStack, cluster: ClusterFacts) -> Iterator[Setting]:
    if known(facts.spot_role):
        yield SpotRole()
    if cluster.name in stack.clusters:
        yield ManagedCluster(stack.name, cluster.name)
    if (eks := known(cluster.eks)) is not None:
        yield Authentication(eks.mode)
    yield from known(cluster.entries) or ()
    yield from known(cluster.objects) or ()
    for group in known(cluster.groups) or ():
        yield from group.tags.values()
        yield from group.hooks


def _severity(change: Change, cluster: ClusterFacts) -> Severity:
    match change.after:
        case ClusterObject(kind=kind) if kind in _RBAC:
            # The API server was asked for each right: a binding of others may grant them too.
            asked = known(cluster.rights) is not None
            return Severity.WARNS if asked else Severity.FAILS
        case ClusterObject() | GroupHook() | SpotRole():
            return Severity.WARNS
        case _:
            return Severity.FAILS


def check_rights(facts: Facts) -> Iterator[Finding]:
    """Check that the API server allows Leeway's groups what they need."""
    for cluster in facts.clusters:
        for one in known(cluster.rights) or ():
            where = f" in namespace {one.namespace}" if one.namespace else ""
            about = About(reasons.RIGHT_MISSING, f"group {one.group}", cluster.name)
            # Without a surge, the drain goes as it goes without the policy.
            found = about.warns if one.role == SURGE_ROLE else about.fails
            yield found(
                f"Group {one.group} may not {one.verb} {one.resource}{where} in cluster "
                f"{cluster.name}.",
                _grant(one),
            )


def _grant(one: Right) -> str:
    if one.role == SURGE_ROLE:
        given = (f"--clusterrole={one.role}", *(f"--group={group}" for group in SURGE_GROUPS))
        place = f"--namespace={one.namespace}"
        return shell("kubectl", "create", "rolebinding", one.role, *given, place)
    if one.role in (BUFFER_ROLE, TARGET_ROLE) and one.namespace != NAMESPACE:
        given = (f"--clusterrole={one.role}", f"--group={one.group}")
        place = f"--namespace={one.namespace}"
        return shell("kubectl", "create", "rolebinding", one.role, *given, place)
    return shell("kubectl", "apply", "--server-side", "-f", "rbac/")


def check_endpoints(facts: Facts) -> Iterator[Finding]:
    """Check that each cluster is active, and that the functions can reach its endpoint."""
    network = known(facts.network)
    for cluster in facts.clusters:
        eks = known(cluster.eks)
        if eks is None:
            continue
        about = About(reasons.ENDPOINT_NOT_REACHABLE, f"cluster {cluster.name}", cluster.name)
        shown = aws("eks describe-cluster", name=cluster.name)
        if eks.status not in ("ACTIVE", "UPDATING"):
            yield about.fails(f"Cluster {cluster.name} is {eks.status}.", shown)
        if network is not None:
            reached = reachability(eks.endpoint, network)
            if reached.blocker is not None:
                yield about.fails(reached.blocker, shown)
            if reached.warning is not None:
                yield about.warns(reached.warning, shown)
