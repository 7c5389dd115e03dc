"""CloudWatch Logs of the sandbox with the lines of the functions, as `Where to look` reads them."""

import json
import re

from leeway_sandbox.provisioning import client

from tests.drills.night import Night, drill
from tests.drills.page import RUNBOOK, commands


@drill("where-to-look")
def test_the_log_of_an_instance_is_in_the_order_of_time(night: Night) -> None:
    (instance,) = night.env.unused_nodes(1, "hooked")
    night.values["INSTANCE"] = instance
    night.env.interrupt([instance])
    first, *others = commands(RUNBOOK.read_text().partition("## Where to look")[2])[:5]
    said = night.type(*others)
    everything = night.type(first).splitlines()
    times = [line[:20] for line in everything]
    assert times == sorted(times)
    of_instance = [line for line in said.splitlines() if f"/{instance}: " in line]
    functions = [line.split()[2] for line in of_instance]
    assert (functions[0], set(functions)) == ("receive-notice", {"receive-notice", "retire-node"})
    assert all(line in everything for line in of_instance)


@drill("where-to-look")
def test_the_log_groups_are_those_of_the_template(night: Night) -> None:
    logs = client("logs", night.sandbox.aws_url)
    groups = logs.describe_log_groups()["logGroups"]
    assert night.sandbox.deployed is not None
    functions = night.sandbox.deployed.functions
    assert {one["logGroupName"] for one in groups} == {one.logs_to for one in functions}
    assert {one["retentionInDays"] for one in groups} == {30}
    night.next_run("reconcile")
    place = {"logGroupName": "/aws/lambda/leeway-reconcile"}
    lines = [
        event["message"]
        for page in logs.get_paginator("filter_log_events").paginate(**place)
        for event in page["events"]
    ]
    kinds = [line.split(" RequestId: ")[0] for line in lines if " RequestId: " in line]
    assert {"START", "END", "REPORT"} <= set(kinds)
    assert any(re.search(r"\tMax Memory Used: \d+ MB\t", line) for line in lines)
    for one in logs.describe_log_streams(**place)["logStreams"]:
        stream = one["logStreamName"]
        assert re.fullmatch(r"\d{4}/\d\d/\d\d/\[\$LATEST\][0-9a-f]{32}", stream)


@drill("where-to-look")
def test_a_role_without_the_right_to_write_its_log_loses_its_lines(night: Night) -> None:
    iam = client("iam", night.sandbox.aws_url)
    assert night.sandbox.deployed is not None
    role = night.sandbox.deployed.stack.roles["ReconcileRole"].name
    (name,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    kept = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
    without = [one for one in kept["Statement"] if one["Sid"] != "WriteLogs"]
    night.type("leeway logs reconcile")

    def grant(statements: object) -> None:
        document = json.dumps({**kept, "Statement": statements})
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=document)

    night.faults("lambda", {"function": "*reconcile", "timeout": 0.21})
    grant(without)
    night.next_run("reconcile")
    assert "after 0.21 seconds" not in night.type("leeway logs reconcile")
    (refused, *_) = night.seen.of("logs-refused")
    assert "logs:PutLogEvents" in refused["problem"]
    grant(kept["Statement"])
