"""Creates a scenario through the APIs of EC2, Auto Scaling and Kubernetes."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import boto3

from leeway_sandbox.access_entries import SECRET, USER_ACCESS_KEY
from leeway_sandbox.scenario import DISCOVERY_TAG, NODE_ROLE, Group, Manifest, Scenario

REGION = "us-east-1"
ACCOUNT = "123456789012"
IMAGE = "ami-12c6146b"  # one of those that moto brings
HOOK = "leeway-drain"
HOOK_TIMEOUT = 300  # seconds between heartbeats
NODE_ROLE_ARN = f"arn:aws:iam::{ACCOUNT}:role/{NODE_ROLE}"
LABEL_TAG = "k8s.io/cluster-autoscaler/node-template/label/"


def credentials(aws_url: str, lambda_url: str) -> dict[str, str]:
    """Return the environment with which any AWS SDK or CLI calls the sandbox."""
    return {
        "AWS_ENDPOINT_URL": aws_url,
        "AWS_ENDPOINT_URL_LAMBDA": lambda_url,
        "AWS_ACCESS_KEY_ID": USER_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }


@lru_cache
def client(service: str, aws_url: str) -> Any:
    """Return a boto3 client of the sandbox's AWS: always the same one, because to build it takes a
    twentieth of a second. The environment does not change it."""
    keys = credentials(aws_url, aws_url)
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=aws_url,
        aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
    )


def provision_aws(scenario: Scenario, aws_url: str) -> tuple[str, ...]:
    """Create what nodes are launched with, the groups and the foreign instances.

    Returns the ids of the foreign instances.
    """
    ec2, autoscaling = client("ec2", aws_url), client("autoscaling", aws_url)
    _prepare_launches(scenario.cluster, ec2, client("iam", aws_url))
    for group in scenario.groups:
        _create_group(scenario.cluster, group, ec2, autoscaling)
    return tuple(_launch_foreign_instance(cluster, ec2) for cluster in scenario.foreign_clusters)


def _prepare_launches(cluster: str, ec2: Any, iam: Any) -> None:
    """Create what launched nodes need: their role, and subnets and a security group with the tag
    by which node classes find them. The SSM parameters of AMIs exist."""
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}}
    document = {"Version": "2012-10-17", "Statement": [{**trust, "Action": "sts:AssumeRole"}]}
    iam.create_role(RoleName=NODE_ROLE, AssumeRolePolicyDocument=json.dumps(document))
    iam.create_instance_profile(InstanceProfileName=NODE_ROLE)
    iam.add_role_to_instance_profile(InstanceProfileName=NODE_ROLE, RoleName=NODE_ROLE)
    default = [{"Name": "default-for-az", "Values": ["true"]}]
    subnets = ec2.describe_subnets(Filters=default)["Subnets"]
    group = ec2.create_security_group(
        GroupName=f"{cluster}-nodes", Description="Nodes", VpcId=subnets[0]["VpcId"]
    )
    found = [*(subnet["SubnetId"] for subnet in subnets), group["GroupId"]]
    ec2.create_tags(Resources=found, Tags=[{"Key": DISCOVERY_TAG, "Value": cluster}])


def _create_group(cluster: str, group: Group, ec2: Any, autoscaling: Any) -> None:
    template = f"{cluster}-{group.name}"
    ec2.create_launch_template(
        LaunchTemplateName=template,
        LaunchTemplateData={
            "ImageId": IMAGE,
            "InstanceType": group.instance_type,
            "InstanceMarketOptions": {"MarketType": "spot"},
        },
    )
    # The hook comes before the first instance, so that it applies to all instances of the group.
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=group.name,
        LaunchTemplate={"LaunchTemplateName": template, "Version": "$Latest"},
        MinSize=0,
        MaxSize=group.size * 2,
        DesiredCapacity=0,
        AvailabilityZones=list(group.zones),
        Tags=[
            {
                "ResourceId": group.name,
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": True,
            }
            for key, value in _tags(cluster, group).items()
        ],
    )
    if group.terminate_hook:
        autoscaling.put_lifecycle_hook(
            AutoScalingGroupName=group.name,
            LifecycleHookName=HOOK,
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=HOOK_TIMEOUT,
            DefaultResult="CONTINUE",
        )
    autoscaling.set_desired_capacity(
        AutoScalingGroupName=group.name, DesiredCapacity=group.size, HonorCooldown=False
    )


def _tags(cluster: str, group: Group) -> dict[str, str]:
    labels = {f"{LABEL_TAG}{key}": value for key, value in group.labels}
    return {f"kubernetes.io/cluster/{cluster}": "owned", "eks:cluster-name": cluster, **labels}


def _launch_foreign_instance(cluster: str, ec2: Any) -> str:
    """Launch one Spot instance of a cluster that Leeway does not manage."""
    tags = {f"kubernetes.io/cluster/{cluster}": "owned", "Name": f"{cluster}-node"}
    launched = ec2.run_instances(
        ImageId=IMAGE,
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        InstanceMarketOptions={"MarketType": "spot"},
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
        ],
    )
    return str(launched["Instances"][0]["InstanceId"])


def kubeconfig(cluster: str, url: str, ca_file: str, token: str) -> dict[str, Any]:
    """Return a kubeconfig with one user, who has the admin token."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [
            {"name": cluster, "cluster": {"server": url, "certificate-authority": ca_file}}
        ],
        "users": [{"name": cluster, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
    }


def create_workloads(workloads: Iterable[Manifest], config: Mapping[str, Any]) -> None:
    """Create the objects in their order with the given kubeconfig."""
    from lightkube import Client, KubeConfig
    from lightkube.codecs import from_dict

    with Client(KubeConfig.from_dict(dict(config)), trust_env=False) as kube:
        for manifest in workloads:
            kube.create(from_dict(dict(manifest)))
