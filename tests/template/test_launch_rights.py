"""Roles launch, tag and end only what carries the tag of a managed cluster."""

from typing import Any

import pytest
from leeway.launch.node_settings import cluster_tags
from leeway_sandbox.aws.policies import (
    FLEET,
    INSTANCE,
    INTERFACE,
    SPOT_REQUEST,
    TEMPLATE,
    VOLUME,
    Launch,
    Tags,
    create_tags,
    create_template,
    pass_role,
    terminate,
)

from tests.template.policies import ACCOUNT, Request, allows, role_names, statements_of

CLUSTERS = "prod,stage"
OURS, THEIRS = cluster_tags("prod"), cluster_tags("elsewhere")
NODE_ROLE = f"arn:aws:iam::{ACCOUNT}:role/prod-nodes"
ADMIN = f"arn:aws:iam::{ACCOUNT}:role/admin"


def statements(role: str) -> list[dict[str, Any]]:
    """The statements of a role in a stack that launches nodes for two clusters."""
    return statements_of(role, ClusterNames=CLUSTERS, NodeRoleArns=NODE_ROLE)


def launch(tags: Tags, template: Tags | None, role: str = NODE_ROLE, **more: Any) -> list[Request]:
    """A launch that gives everything that it creates the same tags."""
    created = {
        "instance": INSTANCE,
        "volume": VOLUME,
        "network-interface": INTERFACE,
        "spot-instances-request": SPOT_REQUEST,
    }
    kinds = dict.fromkeys(("fleet", *created), tags)
    return Launch(kinds, template, role, created=created, **more).checks()


FORBIDDEN = {
    "a launch for another cluster": launch(THEIRS, THEIRS),
    "a launch for another cluster with a template of ours": launch(THEIRS, OURS),
    "a launch with a template of another cluster": launch(OURS, THEIRS),
    "a launch with a template that has no tags": launch(OURS, {}),
    "a launch without tags": launch({}, OURS),
    "a launch without a template": launch(OURS, None, through_fleet=False),
    "a launch with another role": launch(OURS, OURS, ADMIN),
    "the node role for another service": [pass_role(NODE_ROLE, "lambda.amazonaws.com")],
    "another role for EC2": [pass_role(ADMIN)],
    "a template for another cluster": create_template(THEIRS),
    "a template without tags": create_template({}),
    "our tags on an instance of another cluster": create_tags(INSTANCE, OURS, THEIRS),
    "our tags on an instance without tags": create_tags(INSTANCE, OURS, {}),
    "our tags on a template without tags": create_tags(TEMPLATE, OURS, {}),
    "new tags on our own instance": create_tags(INSTANCE, {"x": "y"}, OURS),
    "tags of another cluster at creation": create_tags(INSTANCE, THEIRS, {}, by="RunInstances"),
    "our tags on something that another action creates": create_tags(
        FLEET, OURS, {}, by="CreateVpc"
    ),
    "the end of an instance without tags": terminate({}),
    "the end of an instance of another cluster": terminate({"eks:cluster-name": "elsewhere"}),
    "the end of an instance that EKS assigns to another cluster": terminate(
        {"aws:eks:cluster-name": "elsewhere", "eks:cluster-name": "prod", **OURS}
    ),
}


def test_a_launch_whose_spot_request_has_no_tags_is_denied() -> None:
    untagged = [
        Request(one.action, one.resource, {})
        for one in launch(OURS, OURS)
        if one.resource == SPOT_REQUEST and one.action != "ec2:CreateTags"
    ]
    assert len(untagged) == 2
    for one in untagged:
        assert not allows(statements("ProvisionNodesRole"), one)


def test_a_node_role_may_be_given_to_ec2_in_china() -> None:
    allowed = statements("ProvisionNodesRole")
    assert allows(allowed, pass_role(NODE_ROLE, "ec2.amazonaws.com.cn"))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_role_is_allowed(what: str) -> None:
    assert [role for role in role_names() if allows(statements(role), *FORBIDDEN[what])] == []


@pytest.mark.parametrize(
    "tags",
    [
        {"aws:eks:cluster-name": "stage"},
        {"aws:eks:cluster-name": "prod", "eks:cluster-name": "elsewhere"},
        {"eks:cluster-name": "prod"},
    ],
)
def test_a_retirement_may_end_an_instance_of_its_clusters(tags: Tags) -> None:
    assert allows(statements("RetireNodeRole"), *terminate(tags))


@pytest.mark.parametrize(
    ("call", "roles"),
    [
        (terminate({"aws:eks:cluster-name": "prod"}), {"RetireNodeRole"}),
        (terminate(OURS), {"AdmitNodeRole"}),
        (launch(OURS, OURS), {"ProvisionNodesRole"}),
        (create_template(OURS), {"ProvisionNodesRole"}),
        ([pass_role(NODE_ROLE)], {"ProvisionNodesRole"}),
    ],
)
def test_only_these_roles_may_launch_or_end_instances(call: list[Request], roles: set[str]) -> None:
    assert {role for role in role_names() if allows(statements(role), *call)} == roles


@pytest.mark.parametrize("cluster", CLUSTERS.split(","))
@pytest.mark.parametrize("found", [True, False])
def test_provisioning_may_launch_for_its_clusters_and_is_not_denied_if_a_template_is_gone(
    cluster: str, found: bool
) -> None:
    tags = cluster_tags(cluster)
    allowed = statements("ProvisionNodesRole")
    assert allows(allowed, *create_template(tags))
    assert allows(allowed, *launch(tags, tags, found=found))


@pytest.mark.parametrize("tags", [THEIRS, {}])
def test_provisioning_is_denied_a_template_that_is_gone_for_other_clusters(tags: Tags) -> None:
    assert not allows(statements("ProvisionNodesRole"), *launch(tags, OURS, found=False))


def test_a_fleet_may_name_no_template_that_somebody_else_owns() -> None:
    tags = {"leeway.sh/owner": "somebody"}
    fleets = [one for one in launch(OURS, tags) if one.action == "ec2:CreateFleet"]
    assert not allows(statements("ProvisionNodesRole"), *fleets)
