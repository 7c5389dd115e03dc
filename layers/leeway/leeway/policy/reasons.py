"""Reason codes of the policy: which action applies to a notice."""

from leeway.reasons import ReasonCode

POLICY_ACTION = ReasonCode("PolicyAction", "The policy for {kind} notices has the action {action}.")

POLICY_IGNORES = ReasonCode("PolicyIgnores", "The policy ignores {kind} notices.")

NO_INSTANCE_AFFECTED = ReasonCode(
    "NoInstanceAffected", "The notice does not announce that an EC2 instance stops or ends."
)

TEST_NOTIFICATION = ReasonCode(
    "TestNotification",
    "The event is the test notification that Auto Scaling sends when a lifecycle hook is created.",
)

INSTANCE_NOT_ENDING = ReasonCode(
    "InstanceNotEnding", "The instance is {state}: it neither stops nor terminates."
)
