"""A right that is missing in a namespace is named with the command that gives it."""

from leeway.headroom.missing_rights import BUFFER_ROLE, TARGET_ROLE, how_to_grant
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused

FORBIDDEN = '403: deployments.apps "web" is forbidden: User "x" cannot get resource'
DENIED = '403: admission webhook "policy.example.com" denied the request: no'


def test_a_missing_right_comes_with_the_command_that_gives_it() -> None:
    for role in (TARGET_ROLE, BUFFER_ROLE):
        assert how_to_grant(ClusterForbidden(FORBIDDEN), role, "shop") == (
            f"{FORBIDDEN}; namespace shop grants it by: kubectl create rolebinding {role} "
            f"--clusterrole={role} --group=leeway:headroom --namespace=shop"
        )


def test_what_no_role_moves_is_told_as_it_is() -> None:
    assert how_to_grant(ClusterForbidden(DENIED), TARGET_ROLE, "shop") == DENIED
    assert how_to_grant(ClusterForbidden(FORBIDDEN), "", "") == FORBIDDEN
    assert how_to_grant(ClusterRefused("422: invalid"), TARGET_ROLE, "shop") == "422: invalid"
