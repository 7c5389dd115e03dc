"""Access entries, authentication modes, and tags and hooks of groups as AWS answers them."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Sandbox

ROLE = "arn:aws:iam::123456789012:role/path/leeway-retire"


def cluster(aws: Sandbox, name: str, mode: str | None = None) -> Any:
    eks = aws.client("eks")
    access = {"accessConfig": {"authenticationMode": mode}} if mode else {}
    eks.create_cluster(name=name, roleArn=ROLE, resourcesVpcConfig={}, **access)
    return eks


def refused(call: Callable[..., Any], **arguments: Any) -> str:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return str(error.value.response["Error"]["Code"])


def test_groups_of_kubernetes_and_groups_of_node_entries_are_refused(aws: Sandbox) -> None:
    eks = cluster(aws, "groups", "API")
    one = {"clusterName": "groups", "principalArn": ROLE, "kubernetesGroups": ["system:masters"]}

    assert refused(eks.create_access_entry, **one) == "InvalidParameterException"
    nodes = {**one, "type": "EC2_LINUX", "kubernetesGroups": ["x"]}
    assert refused(eks.create_access_entry, **nodes) == "InvalidParameterException"


def test_tags_and_hooks_of_a_missing_group_are_refused(aws: Sandbox) -> None:
    scaling = aws.client("autoscaling")
    tag = {"ResourceId": "gone", "ResourceType": "auto-scaling-group", "Key": "a", "Value": "b"}
    hook = {"AutoScalingGroupName": "gone", "LifecycleHookName": "leeway-drain"}

    assert refused(scaling.create_or_update_tags, Tags=[tag]) == "ValidationError"
    assert refused(scaling.delete_tags, Tags=[tag]) == "ValidationError"
    assert refused(scaling.delete_lifecycle_hook, **hook) == "ValidationError"


def test_a_hook_keeps_its_target_and_a_missing_one_is_refused(aws: Sandbox) -> None:
    scaling, target = aws.client("autoscaling"), "arn:aws:sns:us-east-1:123456789012:topic"
    aws.group("hooked", 0)
    hook = {"AutoScalingGroupName": "hooked", "LifecycleHookName": "theirs"}

    scaling.put_lifecycle_hook(
        **hook,
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        NotificationTargetARN=target,
        RoleARN=ROLE,
    )

    (found,) = scaling.describe_lifecycle_hooks(AutoScalingGroupName="hooked")["LifecycleHooks"]
    assert (found["NotificationTargetARN"], found["RoleARN"]) == (target, ROLE)
    scaling.delete_lifecycle_hook(**hook)
    assert refused(scaling.delete_lifecycle_hook, **hook) == "ValidationError"


def test_an_entry_changes_also_while_the_cluster_does_not_answer(aws: Sandbox) -> None:
    eks = cluster(aws, "silent", "API")
    aws.control("PUT", "links", {"kubernetes": {"silent": "http://127.0.0.1:9"}})
    eks.create_access_entry(clusterName="silent", principalArn=ROLE)
    assert eks.list_access_entries(clusterName="silent")["accessEntries"] == [ROLE]

    access: dict[str, Any] = {"cluster": "silent", "entries": [], "sessions": {}}
    refused = aws.answer("PUT", "access", access)
    assert (refused.status_code, "refused" in refused.text) == (400, True)
    missing = aws.answer("PUT", "access", {**access, "cluster": "gone"})
    assert (missing.status_code, "EKS has no cluster gone." in missing.text) == (400, True)
