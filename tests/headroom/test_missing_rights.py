"""The reason of a refusal contains the command that grants a missing right."""

from leeway.headroom.reasons import OBJECT_REFUSED
from leeway.headroom.reconciler import BUFFER_ROLE, TARGET_ROLE, refusal_reason
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused

FORBIDDEN = '403: deployments.apps "web" is forbidden: User "x" cannot get resource'
DENIED = '403: admission webhook "policy.example.com" denied the request: no'


def test_a_missing_right_is_reported_with_the_command_that_grants_it() -> None:
    for role in (TARGET_ROLE, BUFFER_ROLE):
        reason = refusal_reason(ClusterForbidden(FORBIDDEN), role, "shop")
        assert reason.code == "HeadroomRightMissing"
        assert FORBIDDEN in reason.message
        assert reason.message.endswith(
            f"`kubectl create rolebinding {role} --clusterrole={role} --group=leeway:headroom "
            "--namespace=shop`."
        )


def test_a_refusal_that_no_role_changes_is_reported_without_a_command() -> None:
    denied = refusal_reason(ClusterForbidden(DENIED), TARGET_ROLE, "shop")
    assert denied == OBJECT_REFUSED(error=DENIED)
    without_role = refusal_reason(ClusterForbidden(FORBIDDEN), "", "")
    assert without_role == OBJECT_REFUSED(error=FORBIDDEN)
    invalid = refusal_reason(ClusterRefused("422: invalid"), TARGET_ROLE, "shop")
    assert invalid == OBJECT_REFUSED(error="422: invalid")
