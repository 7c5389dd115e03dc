"""The process under test, and a recorder in place of the other processes."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.config import Config
from leeway_sandbox.children import Child

from tests.sandbox import control_token

QUICK = [
    "--instance-start=0.1",
    "--instance-stop=0.2",
    "--health-check=0.3",
    "--reaction=0.1",
    "--detach=0.3",
    "--minimum-heartbeat=1",
    "--seed=7",
]


PATIENCE = 60.0
"""Seconds after which a test fails instead of waiting on; a busy machine may need many of them."""


class Sandbox:
    """The process under test; tests use it only over HTTP."""

    def __init__(self, url: str):
        self.url = url
        self._http = httpx.Client(base_url=url, headers=control_token.HEADERS, timeout=PATIENCE)
        self._clients: dict[str, Any] = {}

    def client(self, service: str, region: str = "us-east-1") -> Any:
        """A boto3 client, without retries of its own."""
        key = f"{service} {region}"
        if key not in self._clients:
            self._clients[key] = self._build(service, region)
        return self._clients[key]

    def _build(self, service: str, region: str = "us-east-1") -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=region,
            aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
            aws_secret_access_key="none",
            config=Config(retries={"max_attempts": 0}),
        )

    def answer(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """The answer of the control API."""
        return self._http.request(method, f"/_sandbox/{path}", json=body)

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """The content of a successful answer of the control API."""
        answer = self.answer(method, path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def journal(self, kind: str, **facts: Any) -> list[dict[str, Any]]:
        """All journal entries of a kind that have these facts."""
        entries = self.control("GET", "journal?since=0")["entries"]
        return [
            entry for entry in entries if entry["kind"] == kind and facts.items() <= entry.items()
        ]

    def states(self, group: str) -> dict[str, str]:
        """The lifecycle states of a group's members by instance id."""
        described = self.client("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[group]
        )
        members = described["AutoScalingGroups"][0]["Instances"]
        return {member["InstanceId"]: member["LifecycleState"] for member in members}

    def group(self, name: str, size: int, **options: Any) -> list[str]:
        """Create a group; return the ids of its instances when they are InService."""
        ec2, scaling = self.client("ec2"), self.client("autoscaling")
        subnets = [subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"][:2]]
        data = {"ImageId": "ami-12345678", "InstanceType": "m5.large"} | options.pop("template", {})
        template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        scaling.create_auto_scaling_group(
            **{
                "AutoScalingGroupName": name,
                "MinSize": 0,
                "MaxSize": 10,
                "DesiredCapacity": size,
                "VPCZoneIdentifier": ",".join(subnets),
                "LaunchTemplate": {
                    "LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"]
                },
                **options,
            }
        )
        self.wait(lambda: list(self.states(name).values()) == ["InService"] * size)
        return list(self.states(name))

    @staticmethod
    def wait(condition: Callable[[], Any], within: float = PATIENCE) -> Any:
        """Return the first true value of the condition; fail after `within` seconds."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(0.05)
        raise AssertionError("it did not come about in time")

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
        for client in self._clients.values():
            client.close()


@contextmanager
def started(*options: str) -> Iterator[tuple[Child, str]]:
    """Start a process and wait until it is ready; it stops on SIGTERM, also after an exception."""
    arguments = [*QUICK, *control_token.OPTIONS, *options]
    child = Child.start("leeway_sandbox.aws", arguments, Path(os.devnull))
    try:
        yield child, child.ready(PATIENCE)["url"]
    finally:
        child.terminate()
        ended = child.process.wait(PATIENCE)
        child.stop()
    assert ended == 0


def hook(name: str, transition: str = "TERMINATING", **options: Any) -> dict[str, Any]:
    """A lifecycle hook specification."""
    return {
        "LifecycleHookName": name,
        "LifecycleTransition": f"autoscaling:EC2_INSTANCE_{transition}",
        "HeartbeatTimeout": 60,
        **options,
    }


class Recorder:
    """An HTTP server that records requests and answers with `status`."""

    def __init__(self) -> None:
        self.status = 202
        self.requests: list[dict[str, Any]] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                recorder.requests.append(
                    {
                        "path": self.path,
                        "invocation_type": self.headers.get("X-Amz-Invocation-Type"),
                        "body": json.loads(body),
                    }
                )
                self.send_response(recorder.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
