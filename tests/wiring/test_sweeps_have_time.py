"""EC2 may take its time to describe a thousand instances; a call for one may not."""

from functools import partial

import pytest
from leeway.aws.sweep import Ec2Sweep
from leeway.wiring import clients

from tests.cli.conftest import drop_clients
from tests.sandbox.aws.started import Sandbox, started


def test_a_list_that_takes_longer_than_a_usual_answer_is_read_with_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with started() as (_, url):
        sandbox = Sandbox(url)
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "AKIASWEEPS0000000001",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        drop_clients()
        slow: dict[str, object] = {"service": "ec2", "action": "DescribeInstances"}
        slow |= {"latency": clients.ANSWERS_WITHIN + 1}
        sandbox.control("PUT", "faults", {"faults": [slow]})
        sweep = Ec2Sweep(partial(clients.client, "ec2", answers_within=clients.LISTS_WITHIN))
        assert sweep.instances(["prod"]) == []
        calls = sandbox.control("GET", "status")["calls_by_access_key"]
        assert calls["AKIASWEEPS0000000001"]["ec2:DescribeInstances"] == 1
        sandbox.close()
    drop_clients()
