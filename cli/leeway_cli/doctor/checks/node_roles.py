"""The IAM roles of the nodes of pools."""

from collections.abc import Iterator

from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, PoolFacts, RoleFacts, known
from leeway_cli.doctor.finding import Finding, fails, warns
from leeway_cli.doctor.mending import aws, deploy

_PULLS = ("AmazonEC2ContainerRegistryPullOnly", "AmazonEC2ContainerRegistryReadOnly")
_NEEDED = (
    (("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"), "kubelet cannot join"),
    (_PULLS, "nodes cannot pull images from ECR"),
)
"""Managed policies of which a node's role needs one. Source: EKS user guide, "Amazon EKS node IAM
role"."""


def check_node_roles(facts: Facts) -> Iterator[Finding]:
    """Check that the role of each pool exists, may be passed, and lets a node join."""
    stack = known(facts.stack)
    for cluster in facts.clusters:
        roles = {one.name: one for one in known(cluster.roles) or ()}
        for pool in known(cluster.pools) or ():
            role = roles.get(pool.role)
            if role is not None:
                yield from _check_role(cluster.name, pool, role, stack)


def _check_role(
    cluster: str, pool: PoolFacts, role: RoleFacts, stack: LeewayStack | None
) -> Iterator[Finding]:
    subject = f"role {role.name}"
    if not role.exists:
        mend = aws("iam get-role", role_name=role.name)
        yield fails(
            reasons.POOL_NOT_LAUNCHABLE,
            subject,
            f"IAM has no role {role.name}, which pool {pool.name} names.",
            mend,
            cluster,
        )
        return
    if stack is not None and role.name not in map(_name_of, stack.node_roles):
        given = ",".join((*stack.node_roles, role.arn))
        mend = f"{deploy(stack.name)} --parameter-overrides NodeRoleArns={given}"
        yield fails(
            reasons.POOL_NOT_LAUNCHABLE,
            subject,
            f"The parameter NodeRoleArns of stack {stack.name} does not name role {role.name} "
            f"of pool {pool.name}, so Leeway may launch no node with it.",
            mend,
            cluster,
        )
    for policies, effect in _NEEDED:
        if not role.policies.intersection(policies):
            mend = aws(
                "iam attach-role-policy",
                role_name=role.name,
                policy_arn=_managed(role, policies[0]),
            )
            yield warns(
                reasons.POOL_NOT_LAUNCHABLE,
                subject,
                f"Role {role.name} of pool {pool.name} has no managed policy {policies[0]}: "
                f"{effect} unless another policy grants the same.",
                mend,
                cluster,
            )


def _managed(role: RoleFacts, policy: str) -> str:
    """Return the ARN of a policy that AWS manages, in the partition of a role."""
    partition = role.arn.split(":")[1]
    return f"arn:{partition}:iam::aws:policy/{policy}"


def _name_of(arn: str) -> str:
    return arn.rpartition("/")[2]
