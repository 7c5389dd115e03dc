"""The list of all instances has a longer timeout than a call for one instance."""

from functools import partial

import pytest
from leeway.aws.ec2 import Ec2Sweep
from leeway.wiring import clients

from tests.cli.conftest import drop_clients
from tests.sandbox.aws.started import Sandbox, started


def test_a_list_that_takes_longer_than_the_default_timeout_takes_one_call(
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
        slow |= {"latency": clients.READ_TIMEOUT + 1}
        sandbox.control("PUT", "faults", {"faults": [slow]})
        sweep = Ec2Sweep(partial(clients.client, "ec2", read_timeout=clients.LIST_READ_TIMEOUT))
        assert sweep.instances(["prod"]) == []
        calls = sandbox.control("GET", "status")["calls_by_access_key"]
        assert calls["AKIASWEEPS0000000001"]["ec2:DescribeInstances"] == 1
        sandbox.close()
    drop_clients()
