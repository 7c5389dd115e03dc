"""AMIs are found by SSM parameters, ids, names, tags and owners."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

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
