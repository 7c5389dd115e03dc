"""A cluster, Leeway's stack and Auto Scaling groups, before anybody adopts the cluster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leeway_cli.adopt.plan import RBAC, read_objects

from tests.aws.stored import TABLE, create_table
from tests.sandbox.aws.started import Sandbox, hook, started
from tests.sandbox.kubernetes.live import Live, running_cluster
from tests.template.translation import deployed

ROOT = Path(__file__).parents[2]
ACCOUNT = "123456789012"
STACK = "nodes"
OBJECTS = read_objects(RBAC)

SMALL_RBAC = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: leeway-watch, labels: {app.kubernetes.io/name: leeway}}
rules: [{apiGroups: [""], resources: [pods], verbs: [watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: leeway-watch, labels: {app.kubernetes.io/name: leeway}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: leeway-watch}
subjects:
"""
"""A role and a binding for all groups: adopt writes them faster than rbac/."""

Settings = dict[str, Any]


DEPLOYED = deployed()
ENTRIES = DEPLOYED.access_entries


def write_small_rbac(folder: Path) -> Path:
    """Write a folder that `--rbac` accepts, for all groups of the stack's roles."""
    groups = sorted(set(ENTRIES.values()))
    subjects = [
        f"- {{apiGroup: rbac.authorization.k8s.io, kind: Group, name: '{one}'}}" for one in groups
    ]
    (folder / "leeway.yaml").write_text(SMALL_RBAC + "\n".join(subjects))
    return folder


def role(name: str) -> str:
    """Return the ARN of a role: one of the stack, by its logical id, or another."""
    roles = DEPLOYED.stack.roles
    return roles[name].arn if name in roles else f"arn:aws:iam::{ACCOUNT}:role/{name}"


@dataclass
class World:
    """The sandbox's AWS and one Kubernetes cluster, which EKS knows by several names."""

    aws: Sandbox
    kubernetes: Live

    def cluster(self, name: str, mode: str = "API", **endpoint: Any) -> None:
        """Create an EKS cluster with the endpoint of the Kubernetes cluster."""
        self.aws.client("eks").create_cluster(
            name=name,
            roleArn=role("cluster"),
            resourcesVpcConfig=endpoint,
            accessConfig={"authenticationMode": mode},
        )
        link = {"endpoint": self.kubernetes.url, "ca_file": self.kubernetes.ca}
        self.aws.control("PUT", "links", {"eks": {name: link}})

    def stack(self, name: str, entries: Mapping[str, str] = ENTRIES, **parameters: str) -> None:
        """Register Leeway's stack, as the sandbox does that has deployed the template."""
        deployed = DEPLOYED.stack
        metadata = {**deployed.declared["Metadata"], "AccessEntries": dict(entries)}
        changes: dict[str, Any] = {
            "name": name,
            "declared": {**deployed.declared, "Metadata": metadata},
            "parameters": {**deployed.parameters, "LogLevel": "DEBUG", **parameters},
            "outputs": {**deployed.outputs, "TableName": {"Value": TABLE}},
            "roles": {},
            "alarms": {},
        }
        stack = deployed.model_copy(update=changes)
        self.aws.control("POST", "stacks", stack.model_dump())

    def parameters(self, stack: str) -> dict[str, str]:
        found = self.aws.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
        return {one["ParameterKey"]: one["ParameterValue"] for one in found["Parameters"]}

    def group(self, name: str, cluster: str, *hooks: str, **tags: str) -> None:
        """Create a group without instances that belongs to the cluster."""
        owned = {f"kubernetes.io/cluster/{cluster}": "owned", **tags}
        self.aws.group(
            name,
            0,
            Tags=[
                {"ResourceId": name, "Key": key, "Value": value, "PropagateAtLaunch": True}
                for key, value in owned.items()
            ],
            LifecycleHookSpecificationList=[hook(one) for one in hooks],
        )

    def state(self, cluster: str, stack: str) -> Settings:
        """Return all that adopt may change, as AWS and the API server return it."""
        eks, scaling = self.aws.client("eks"), self.aws.client("autoscaling")
        described = eks.describe_cluster(name=cluster)["cluster"]
        found: Settings = {"mode": described["accessConfig"]["authenticationMode"]}
        if found["mode"] != "CONFIG_MAP":
            for arn in eks.list_access_entries(clusterName=cluster)["accessEntries"]:
                entry = eks.describe_access_entry(clusterName=cluster, principalArn=arn)
                found[arn] = sorted(entry["accessEntry"]["kubernetesGroups"])
        for one in scaling.describe_auto_scaling_groups()["AutoScalingGroups"]:
            name = one["AutoScalingGroupName"]
            found[f"{name} tags"] = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
            hooks = scaling.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
            found[f"{name} hooks"] = {h["LifecycleHookName"]: h["HeartbeatTimeout"] for h in hooks}
        for wanted in OBJECTS:
            answer = self.kubernetes.api.get(wanted.path)
            if answer.status_code == 200:
                kept = answer.json()
                found[wanted.path] = {key: kept[key] for key in ("rules", "spec") if key in kept}
        found["parameters"] = self.parameters(stack)
        found["manifests"] = self.records(f"MANIFESTS#{cluster}")
        return found

    def records(self, partition: str) -> list[Any]:
        values = {":pk": {"S": partition}}
        items = self.aws.client("dynamodb").query(
            TableName=TABLE, KeyConditionExpression="pk = :pk", ExpressionAttributeValues=values
        )["Items"]
        return [item["sk"]["S"] for item in items]

    def clean(self) -> None:
        """Remove faults, objects, groups and records; clusters and stacks stay."""
        self.aws.control("PUT", "faults", {"faults": []})
        self.kubernetes.fail_with()
        found = [o for o in OBJECTS if self.kubernetes.api.get(o.path).status_code == 200]
        for one in reversed(found):
            self.kubernetes.api.delete(one.path)
        self.kubernetes.until(
            lambda: self.kubernetes.api.get("/api/v1/namespaces/leeway-headroom").status_code == 404
        )
        scaling, table = self.aws.client("autoscaling"), self.aws.client("dynamodb")
        for group in scaling.describe_auto_scaling_groups()["AutoScalingGroups"]:
            scaling.delete_auto_scaling_group(
                AutoScalingGroupName=group["AutoScalingGroupName"], ForceDelete=True
            )
        self.aws.wait(lambda: not scaling.describe_auto_scaling_groups()["AutoScalingGroups"])
        ec2 = self.aws.client("ec2")
        for template in ec2.describe_launch_templates()["LaunchTemplates"]:
            ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
        for item in table.scan(TableName=TABLE)["Items"]:
            table.delete_item(TableName=TABLE, Key={key: item[key] for key in ("pk", "sk")})


@contextmanager
def running_world(folder: Path) -> Iterator[World]:
    """Run the two processes while the context lasts."""
    with started() as (_, url), running_cluster(folder) as live:
        aws = Sandbox(url)
        create_table(aws.client("dynamodb"))
        aws.client("cloudformation").describe_stacks()  # moto takes long to load it
        yield World(aws, live)
        aws.close()
