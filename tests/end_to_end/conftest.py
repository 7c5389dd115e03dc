"""One sandbox for all end-to-end tests, with enough nodes for each test."""

import json
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Manifest, Scenario

from tests.cli.conftest import drop_clients
from tests.end_to_end.environment import PATIENCE, Entry, Environment
from tests.end_to_end.rights import check_calls_are_granted

HOOKED, PLAIN = 26, 26


def deployment(name: str, replicas: int, grace: int) -> Manifest:
    labels = {"app": name}
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": grace},
            },
        },
    }


def scaled_object(name: str, kind: str, target: str) -> dict[str, Any]:
    """A ScaledObject with three replicas every other minute."""
    cron = {"timezone": "UTC", "start": "*/2 * * * *", "end": "* * * * *", "desiredReplicas": "3"}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"kind": kind, "name": target},
            "triggers": [{"type": "cron", "metadata": cron}],
            "advanced": {"restoreToOriginalReplicaCount": True},
        },
    }


def daemonset(name: str) -> Manifest:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "c", "image": "pause"}],
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        },
    }


WORLD = Scenario(
    cluster="end-to-end",
    groups=(
        Group("hooked", HOOKED, terminate_hook=True),
        Group("plain", PLAIN),
    ),
    workloads=(deployment("web", 92, 5), daemonset("cni")),
    foreign_clusters=("somebody-elses",),
)


@pytest.fixture(scope="session")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The sandbox without faults. At the end, every call of a function must be granted to its
    role."""
    state = tmp_path_factory.mktemp("sandbox")
    options = {"lambda": ["--retry-delay", "1"]}
    with Sandbox.start(WORLD, state_dir=state, options=options) as sandbox:
        yield Environment(sandbox)
        check_calls_are_granted(sandbox)


@pytest.fixture(autouse=True)
def without_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove all faults after each test that uses `env`. Others start no such sandbox."""
    env = request.getfixturevalue("env") if "env" in request.fixturenames else None
    yield
    for part in ("kubernetes", "aws", "lambda"):
        if env is not None:
            env.sandbox.faults(part, [])


@pytest.fixture(autouse=True)
def own_clients() -> Iterator[None]:
    """Give each test clients of its own. The command line keeps its AWS clients for a process, and
    several modules start a sandbox, each at other addresses."""
    drop_clients()
    yield
    drop_clients()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report what the functions did before a test failed; a busy machine may not fail it again."""
    report = yield
    if report.when == "call" and report.failed:
        report.sections += [
            ("Functions before the failure", "\n".join(map(_told, _before_now(sandbox))))
            for name in getattr(item, "fixturenames", ())
            for value in [getattr(item, "funcargs", {}).get(name)]
            if isinstance(sandbox := getattr(value, "sandbox", value), Sandbox)
        ][:1]
    return report


def _before_now(sandbox: Sandbox) -> list[Entry]:
    since = time.time() - PATIENCE - 30
    found: list[Entry] = []
    with suppress(SandboxError):  # it has failed, too
        found = [one for one in sandbox.journal() if one["at"] >= since and _tells_much(one)]
    return found[-400:]


def _tells_much(entry: Entry) -> bool:
    line = entry.get("line")
    match entry["kind"]:
        case "logs":
            return "code" in line if isinstance(line, dict) else "Error" in str(line)
        case "invocation":
            return bool(entry["outcome"] != "ok")
        case kind:
            return not kind.startswith(("pod-", "node-", "queue-", "schedule-", "eviction"))


def _told(entry: Entry) -> str:
    return json.dumps(entry, default=str)[:600]
