"""Each error of a fleet has a cause, a reason, and an effect on the rest of the run."""

import pytest
from leeway.launch.fleet_errors import Cause, cause_of, consequences_of
from leeway.launch.fleets import FleetError, Override
from leeway.selection.offers.catalog import ANY, Unavailable

M5_A = Override("m5.large", "us-east-1a", "subnet-a")
M5_B = Override("m5.large", "us-east-1b", "subnet-b")


def error(code: str, override: Override | None = M5_A, message: str = "Sorry.") -> FleetError:
    return FleetError(code, message, "spot", override)


CAUSES = {
    "InsufficientInstanceCapacity": Cause.CAPACITY,
    "UnfulfillableCapacity": Cause.CAPACITY,
    "Unsupported": Cause.CAPACITY,
    "ReservationCapacityExceeded": Cause.CAPACITY,
    "InvalidFleetConfiguration": Cause.CAPACITY,
    "MaxSpotInstanceCountExceeded": Cause.QUOTA,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": Cause.SPOT_ROLE,
    "MaxFleetCountExceeded": Cause.QUOTA,
    "VcpuLimitExceeded": Cause.QUOTA,
    "InsufficientFreeAddressesInSubnet": Cause.SUBNET,
    "UnauthorizedOperation": Cause.PERMISSION,
    "InvalidAMIID.NotFound": Cause.SETTINGS,
    "InvalidLaunchTemplateId.NotFound": Cause.TEMPLATE,
    "InvalidLaunchTemplateName.NotFoundException": Cause.TEMPLATE,
    "InvalidParameterValue": Cause.SETTINGS,
    "InvalidFleetConfig": Cause.SETTINGS,
    "InvalidUserData.Malformed": Cause.SETTINGS,
    "RequestLimitExceeded": Cause.THROTTLING,
    "SomethingNew": Cause.UNKNOWN,
}


@pytest.mark.parametrize("code", CAUSES)
def test_a_code_has_a_cause_and_a_reason_with_its_facts(code: str) -> None:
    assert cause_of(code) is CAUSES[code]
    (reason,) = consequences_of("web", [error(code)]).reasons
    facts = {"m5.large", "subnet-a", "web", "AWSServiceRoleForEC2Spot"}
    assert any(fact in reason.message for fact in facts)
    assert reason.message.endswith(".")
    assert ".:" not in reason.message
    assert ".)" not in reason.message


def test_an_offering_without_capacity_is_unavailable_and_others_are_not() -> None:
    found = consequences_of("web", [error("InsufficientInstanceCapacity")])
    assert found.unavailable == {
        Unavailable("m5.large", "us-east-1a", "spot"): "InsufficientInstanceCapacity"
    }
    assert (found.blocked, found.repeat, found.avoided) == (None, False, frozenset())


def test_a_spot_quota_makes_spot_of_the_types_that_it_counts_unavailable() -> None:
    code = "MaxSpotInstanceCountExceeded"
    overrides = [Override(f"{one}.xlarge", "us-east-1a", "subnet-a") for one in ("g5", "gr6")]
    found = consequences_of("web", [error(code, one) for one in (*overrides, M5_A)])
    assert found.unavailable == {
        Unavailable("All G and VT Spot Instance Requests", ANY, "spot"): code,
        Unavailable(
            "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", ANY, "spot"
        ): code,
    }
    assert found.blocked is None


def test_a_spot_quota_that_is_not_known_makes_one_offering_unavailable() -> None:
    high = Override("u-6tb1.112xlarge", "us-east-1a", "subnet-a")
    found = consequences_of("web", [error("MaxSpotInstanceCountExceeded", high)])
    assert list(found.unavailable) == [Unavailable("u-6tb1.112xlarge", "us-east-1a", "spot")]


def test_without_the_role_for_spot_all_spot_is_unavailable_and_on_demand_goes_on() -> None:
    code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    found = consequences_of("web", [error(code, M5_A), error(code, M5_B)])
    assert list(found.unavailable) == [Unavailable(ANY, ANY, "spot")]
    assert found.blocked is None
    assert [one.code for one in found.reasons] == ["SpotRoleMissing"]
    assert "aws iam create-service-linked-role" in found.reasons[0].message


@pytest.mark.parametrize("override", [M5_A, None])
def test_the_first_denial_may_mean_a_deleted_template_and_the_second_blocks_the_pool(
    override: Override | None,
) -> None:
    denied = [error("UnauthorizedOperation", override)]
    first = consequences_of("web", denied, denied_before=False)
    assert (first.blocked, first.repeat, first.avoided) == (None, True, frozenset())
    second = consequences_of("web", denied, denied_before=True)
    assert second.blocked is not None
    assert second.blocked.code == "LaunchRefused"
    assert not second.repeat


def test_a_full_subnet_makes_no_offering_unavailable() -> None:
    found = consequences_of("web", [error("InsufficientFreeAddressesInSubnet")])
    assert found.exhausted == {"subnet-a"}
    assert not found.unavailable
    assert found.blocked is None


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidAMIID.NotFound"])
def test_an_error_that_every_override_has_blocks_the_pool(code: str) -> None:
    found = consequences_of("web", [error(code, M5_A), error(code, M5_B)])
    assert found.blocked is not None
    assert code in found.blocked.message
    assert not found.unavailable


def test_a_wrong_setting_of_one_override_leaves_the_others() -> None:
    errors = [error("InvalidParameterValue", M5_A), error("InsufficientInstanceCapacity", M5_B)]
    found = consequences_of("web", errors)
    assert found.blocked is None
    assert found.avoided == {Unavailable("m5.large", "us-east-1a", "spot")}
    assert list(found.unavailable) == [Unavailable("m5.large", "us-east-1b", "spot")]


@pytest.mark.parametrize(
    "code",
    ["MaxFleetCountExceeded", "MaxSpotInstanceCountExceeded", "SomethingNew", "Unsupported"],
)
def test_an_error_of_the_whole_call_blocks_the_pool(code: str) -> None:
    found = consequences_of("web", [error(code, None)])
    assert found.blocked is not None


def test_a_throttled_call_is_repeated_and_blocks_nothing() -> None:
    found = consequences_of("web", [error("RequestLimitExceeded", None)])
    assert found.repeat
    assert found.blocked is None


def test_an_unknown_error_is_avoided_in_this_run_only() -> None:
    found = consequences_of("web", [error("SomethingNew")])
    assert found.avoided == {Unavailable("m5.large", "us-east-1a", "spot")}
    assert not found.unavailable


def test_many_errors_of_one_cause_are_one_reason() -> None:
    overrides = [Override(f"m{n}.large", "us-east-1a", "subnet-a") for n in range(9)]
    found = consequences_of("web", [error("InsufficientInstanceCapacity", o) for o in overrides])
    (reason,) = found.reasons
    assert "m0.large, m1.large, m2.large and 6 more" in reason.message


def test_no_error_has_no_consequence() -> None:
    found = consequences_of("web", [])
    assert not found.reasons
    assert (found.blocked, found.repeat) == (None, False)
