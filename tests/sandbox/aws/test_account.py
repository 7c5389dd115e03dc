"""What an account has: images and their parameters, quotas, access entries, records that expire."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from leeway_sandbox.aws.dynamodb import PartitionedTable, expire

from tests.sandbox.aws.started import Sandbox

EKS = "/aws/service/eks/optimized-ami"
WINDOWS = "/aws/service/ami-windows-latest"
BOTTLEROCKET = "/aws/service/bottlerocket"


def _image(aws: Sandbox, parameter: str) -> dict[str, Any]:
    value = aws.client("ssm").get_parameter(Name=parameter)["Parameter"]["Value"]
    [image] = aws.client("ec2").describe_images(ImageIds=[value])["Images"]
    found: dict[str, Any] = image
    return found


@pytest.mark.parametrize(
    ("parameter", "name", "architecture"),
    [
        (f"{EKS}/1.34/amazon-linux-2023/x86_64/standard/recommended", "al2023-x86_64-st", "x86_64"),
        (f"{EKS}/1.34/amazon-linux-2023/arm64/standard/recommended", "al2023-arm64-sta", "arm64"),
        (f"{EKS}/1.34/amazon-linux-2023/x86_64/nvidia/recommended", "x86_64-nvidia-1.34", "x86_64"),
        (f"{EKS}/1.34/amazon-linux-2023/x86_64/neuron/recommended", "x86_64-neuron-1.34", "x86_64"),
        (f"{EKS}/1.32/amazon-linux-2/recommended", "amazon-eks-node-1.32-v", "x86_64"),
        (f"{EKS}/1.32/amazon-linux-2-gpu/recommended", "amazon-eks-gpu-node-1.32-v", "x86_64"),
        (f"{EKS}/1.32/amazon-linux-2-arm64/recommended", "amazon-eks-arm64-node-1.3", "arm64"),
        (f"{BOTTLEROCKET}/aws-k8s-1.34/arm64/latest", "aws-k8s-1.34-aarch64", "arm64"),
        (f"{BOTTLEROCKET}/aws-k8s-1.34-nvidia/x86_64/latest", "1.34-nvidia-x86_64-v", "x86_64"),
        (f"{WINDOWS}/Windows_Server-2022-English-Core-EKS_Optimized-1.34", "2022-Engl", "x86_64"),
        (f"{WINDOWS}/Windows_Server-2019-English-Full-EKS_Optimized-1.34", "2019-Engl", "x86_64"),
    ],
)
def test_a_parameter_names_the_latest_image(
    aws: Sandbox, parameter: str, name: str, architecture: str
) -> None:
    image = _image(aws, f"{parameter}/image_id")
    assert name in image["Name"]
    assert image["Architecture"] == architecture
    assert image["ImageOwnerAlias"] == "amazon"
    assert image["State"] == "available"
    assert ("windows" in image["Name"].lower()) == (image.get("Platform") == "windows")


@pytest.mark.parametrize(
    "parameter",
    [
        f"{EKS}/1.33/amazon-linux-2/recommended/image_id",
        f"{EKS}/1.19/amazon-linux-2023/x86_64/standard/recommended/image_id",
        f"{EKS}/1.34/amazon-linux-2023/arm64/neuron/recommended/image_id",
        f"{BOTTLEROCKET}/aws-k8s-1.34/riscv/latest/image_id",
    ],
)
def test_a_parameter_that_aws_does_not_have_is_not_found(aws: Sandbox, parameter: str) -> None:
    with pytest.raises(ClientError) as refused:
        aws.client("ssm").get_parameter(Name=parameter)
    assert refused.value.response["Error"]["Code"] == "ParameterNotFound"


def test_releases_are_listed_by_path_and_the_recommended_one_is_the_newest(aws: Sandbox) -> None:
    ssm, path = aws.client("ssm"), f"{EKS}/1.34/amazon-linux-2023/x86_64/standard"
    pages = ssm.get_paginator("get_parameters_by_path").paginate(Path=path, Recursive=True)
    listed = {one["Name"]: one["Value"] for page in pages for one in page["Parameters"]}
    ids = {name: value for name, value in listed.items() if name.endswith("/image_id")}
    assert len(set(ids.values())) == 2
    newest = max(name for name in ids if "recommended" not in name)
    assert listed[f"{path}/recommended/image_id"] == listed[newest]
    facts = json.loads(listed[f"{path}/recommended"])
    assert facts["image_id"] == listed[newest]
    several = [f"{path}/recommended/image_id", f"{path}/none/image_id"]
    answer = ssm.get_parameters(Names=several)
    assert answer["InvalidParameters"] == several[1:]
    version = f"{BOTTLEROCKET}/aws-k8s-1.34/x86_64/latest/image_version"
    assert ssm.get_parameter(Name=version)["Parameter"]["Value"].startswith("1.52.0")


def test_own_images_are_found_by_tag(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    made = ec2.register_image(Name="our-nodes")["ImageId"]
    ec2.create_tags(Resources=[made], Tags=[{"Key": "team", "Value": "search"}])
    by_tag = [{"Name": "tag:team", "Values": ["search"]}]
    [found] = ec2.describe_images(Owners=["self"], Filters=by_tag)["Images"]
    assert found["ImageId"] == made
    assert found["Tags"] == [{"Key": "team", "Value": "search"}]


def test_quotas_come_in_pages(aws: Sandbox) -> None:
    quotas = aws.client("service-quotas")
    pages = quotas.get_paginator("list_service_quotas").paginate(
        ServiceCode="ec2", PaginationConfig={"PageSize": 3}
    )
    found = [[one["QuotaCode"] for one in page["Quotas"]] for page in pages]
    assert [len(page) for page in found] == [3, 1]
    assert "L-34B43A08" in found[0]
    assert len({code for page in found for code in page}) == 4


def test_other_services_have_none(aws: Sandbox) -> None:
    with pytest.raises(ClientError, match="NoSuchResourceException"):
        aws.client("service-quotas").list_service_quotas(ServiceCode="lambda")


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


def test_items_are_deleted_an_hour_after_their_time_to_live() -> None:
    attributes = [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")]
    schema = [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    table: Any = PartitionedTable("t", "123456789012", "us-east-1", schema, attributes)  # type: ignore[abstract]
    table.ttl = {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires"}
    for number, end in enumerate(("100", "300", None)):
        item = {"pk": {"S": "a"}, "sk": {"S": str(number)}}
        table.put_item(item if end is None else item | {"expires": {"N": end}})
    expire([table], before=200)
    assert [item.attrs["sk"].value for item in table.all_items()] == ["1", "2"]
