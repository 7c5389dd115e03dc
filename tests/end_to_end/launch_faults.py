"""Pools whose launches fail, each with a node class and pods of its own, and what runs leave."""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from typing import Any

from leeway.admission.record import ADMISSION
from leeway.aws.functions import LambdaExecutions, RateLimit
from leeway.aws.provision_queue import SqsProvisionNodes
from leeway.aws.table import DynamoTable
from leeway.clock import SystemClock
from leeway.instances.facts import INTENT_TAG, POOL_TAG
from leeway.launch.intent import INTENT, LaunchIntent
from leeway.selection.labels import NODEPOOL
from leeway_cli import main
from leeway_sandbox.access_entries import access_key
from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.sandbox import Sandbox
from lightkube import Client
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Event, Pod

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import until
from tests.end_to_end.provisioning import CLUSTER, FUNCTION, end_time_to_join, queue, run, table_of

type Document = dict[str, Any]

ONE_POD_EACH = {"cpu": ["2"], "family": ["m5"]}
"""Instance types with room for one pod of `PoolCase.need`."""


def no_capacity(zone: str = "*", **how: Any) -> Document:
    """The fault of a zone without capacity for fleets."""
    fault = {"service": "ec2", "action": "Launch", "zone": zone}
    return fault | {"error": "InsufficientInstanceCapacity"} | how


def failing(action: str, **how: Any) -> Document:
    """The fault of a call of provision_nodes to EC2."""
    return {"service": "ec2", "action": action, "function": FUNCTION} | how


@dataclass
class PoolCase:
    """A pool, its pods, and what EC2, the table, the log and the cluster have of it."""

    sandbox: Sandbox
    kube: Client
    pool: str
    since: float = field(default_factory=time.time)

    def need(self, count: int) -> None:
        """Let so many pods wait for a node of the pool; each fills a node of two processors."""
        if self._deployed():
            body = {"spec": {"replicas": count}}
            self.kube.patch(Deployment, self.pool, body, namespace="default")
        else:
            wanted: Any = deployment(self.pool, count, 1)
            spec = wanted["spec"]["template"]["spec"]
            spec["nodeSelector"] = {NODEPOOL: self.pool}
            spec["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
            create_workloads([wanted], self.sandbox.write_kubeconfig())
        until(lambda: len(self.pods()) == count)

    def end(self) -> None:
        """Remove the faults and the pods."""
        for part in ("aws", "lambda", "kubernetes"):
            self.sandbox.faults(part, [])
        if self._deployed():
            self.kube.delete(Deployment, self.pool, namespace="default")
        until(lambda: not self.pods())

    def runs(self, count: int = 3) -> list[int]:
        """Run provision_nodes so often; return how many CreateFleet calls each run made."""
        made = []
        for _ in range(count):
            before = self.fleet_calls
            assert run(self.sandbox) == []
            made.append(self.fleet_calls - before)
        return made

    def pods(self) -> list[Pod]:
        """The pods."""
        return list(self.kube.list(Pod, namespace="default", labels={"app": self.pool}))

    def delete_templates(self) -> None:
        """Delete all launch templates: the next launch creates its own again."""
        ec2 = client("ec2", self.sandbox.aws_url)
        for one in ec2.describe_launch_templates()["LaunchTemplates"]:
            ec2.delete_launch_template(LaunchTemplateId=one["LaunchTemplateId"])

    def until_all_run(self) -> None:
        """Wait until all pods run."""
        until(lambda: all(one.status and one.status.phase == "Running" for one in self.pods()))

    @property
    def fleet_calls(self) -> int:
        """How often provision_nodes has called CreateFleet, with the calls that boto3 repeats."""
        return self.calls().get("ec2:CreateFleet", 0)

    def calls(self) -> Counter[str]:
        """The AWS calls of provision_nodes until now."""
        by_key = self.sandbox.status()["aws"]["calls_by_access_key"]
        return Counter(by_key.get(access_key(FUNCTION), {}))

    def instances(self, *states: str) -> dict[str, str]:
        """The intents of the pool's instances by instance: of all that were launched, or of those
        in some states."""
        filters = [{"Name": f"tag:{POOL_TAG}", "Values": [self.pool]}]
        if states:
            filters.append({"Name": "instance-state-name", "Values": list(states)})
        pages = client("ec2", self.sandbox.aws_url).describe_instances(Filters=filters)
        found = [one for page in pages["Reservations"] for one in page["Instances"]]
        return {one["InstanceId"]: _tags(one)[INTENT_TAG] for one in found}

    def intents(self) -> list[LaunchIntent]:
        """The launch intents of the pool."""
        dynamodb = client("dynamodb", self.sandbox.aws_url)
        stored = DynamoTable(lambda: dynamodb, table_of(self.sandbox))
        found = stored.list(INTENT, cluster=CLUSTER)
        return [one for one in found if one.pool == self.pool]

    def check_launched(self, count: int) -> None:
        """Check that so many instances were ever launched, each by the one intent that names it,
        and that each has an admission."""
        launched = self.instances()
        assert len(launched) == count, launched
        named = [(i.instance, one.id) for one in self.intents() for i in one.instances]
        assert sorted(named) == sorted(launched.items())
        table = self._table()
        admitted = [table.get(ADMISSION, cluster=CLUSTER, instance=one) for one in launched]
        assert all(admitted), launched

    def check_told(self, code: str, pods: int, event: str = "") -> None:
        """Check that the log and `leeway status` have a code, and that so many pods have one Event
        with it, or with the code `event`."""
        assert code in self.logged(), self.logged()
        assert code in self.shown(), self.shown()
        about = [one for one in self.events() if one.reason == (event or code)]
        assert {one.count for one in about} <= {1}
        names = [one.involvedObject.name for one in about]
        assert len(names) == len(set(names)) == pods, [one.reason for one in self.events()]
        for one in about:
            assert "Traceback" not in str(one.message)

    def logged(self) -> set[str]:
        """The codes of the log lines of provision_nodes since the case began."""
        lines = [
            entry["line"]
            for entry in self.sandbox.journal()
            if entry["kind"] == "logs"
            and entry["function"] == FUNCTION
            and entry["at"] >= self.since
        ]
        assert not any("Traceback" in str(line) for line in lines)
        return {line["code"] for line in lines if isinstance(line, dict) and "code" in line}

    def status(self) -> Document:
        """The cluster in `leeway status`."""
        printed = StringIO()
        with redirect_stdout(printed):
            assert main.run(["status", "--cluster", CLUSTER, "-o", "json"]) == 0
        (found,) = json.loads(printed.getvalue())["clusters"]
        assert isinstance(found, dict)
        return found

    def shown(self) -> set[str]:
        """The codes of problems and of pods without a node in `leeway status`."""
        status = self.status()
        provisioning = status["provisioning"]
        pools = (*status["pausedPools"], *status["latePools"])
        reasons = [*provisioning["problems"], *(one["reason"] for one in pools)]
        reasons += [one["reason"] for one in provisioning["withoutNode"]]
        return {one["code"] for one in reasons}

    def events(self) -> list[Event]:
        """The Events of Leeway about the pods."""
        names = {one.metadata.name for one in self.pods() if one.metadata}
        found = self.kube.list(Event, namespace="default")
        return [
            one
            for one in found
            if one.reportingComponent == "leeway" and one.involvedObject.name in names
        ]

    def let_time_pass(self, passed: timedelta) -> None:
        """Let the launches of the pool be so much older, and the marks of offerings expire."""
        dynamodb, table = client("dynamodb", self.sandbox.aws_url), table_of(self.sandbox)
        writing = DynamoTable(lambda: dynamodb, table)
        older = [
            one.model_copy(update={"created_at": one.created_at - passed, "version": 1})
            for one in self.intents()
        ]
        delete_items(self.sandbox, "OFFERINGS#", lambda _: True)
        delete_items(self.sandbox, "LAUNCH#", lambda record: record["pool"] == self.pool)
        for one in older:
            writing.put(INTENT, one)

    def _deployed(self) -> bool:
        found = self.kube.list(Deployment, namespace="default")
        return any(one.metadata and one.metadata.name == self.pool for one in found)

    def _table(self) -> DynamoTable:
        return DynamoTable(lambda: client("dynamodb", self.sandbox.aws_url), table_of(self.sandbox))


def wake(sandbox: Sandbox) -> None:
    """Send a message to provision_nodes by its queue."""
    sqs, url = queue(sandbox)
    SqsProvisionNodes(lambda: sqs, url).wake(CLUSTER, "test")


def until_consumed(sandbox: Sandbox) -> None:
    """Wait until the queue of provision_nodes has no message, visible or not."""
    sqs, url = queue(sandbox)
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

    def consumed() -> bool:
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return not any(int(count) for count in found.values())

    until(consumed)


def _tags(instance: Mapping[str, Any]) -> dict[str, str]:
    return {one["Key"]: one["Value"] for one in instance["Tags"]}


def delete_items(sandbox: Sandbox, prefix: str, which: Callable[[Document], bool]) -> None:
    """Delete items of the table by the prefix of their key and by their record."""
    dynamodb, table = client("dynamodb", sandbox.aws_url), table_of(sandbox)
    for item in dynamodb.scan(TableName=table)["Items"]:
        record = json.loads(item.get("record", {}).get("S", "{}"))
        if item["pk"]["S"].startswith(prefix) and which(record):
            dynamodb.delete_item(TableName=table, Key={key: item[key] for key in ("pk", "sk")})


def end_admissions(sandbox: Sandbox, cluster: str, instances: Collection[str]) -> None:
    """Move the deadlines of admissions to now, and start admit_node for each."""
    assert sandbox.deployed is not None
    table = table_of(sandbox)
    (function,) = [f for f in sandbox.deployed.functions if f.logical_id == "AdmitNodeFunction"]
    executions = LambdaExecutions(
        lambda: client("lambda", sandbox.lambda_url),
        f"{function.name}:live",
        "admit",
        table,
        RateLimit(SystemClock()),
    )
    for instance, attempt in end_time_to_join(sandbox, sorted(instances), cluster).items():
        executions.start(instance, cluster, attempt)
