"""One sandbox for all end-to-end tests: enough nodes that each test has its own."""

from collections.abc import Iterator

import pytest

from sandbox.sandbox import Sandbox
from sandbox.scenario import Group, Manifest, Scenario
from tests.end_to_end.rehearsal import Rehearsal
from tests.end_to_end.rights import hold_to_what_is_granted

HOOKED, PLAIN = 41, 41


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
    cluster="rehearsal",
    groups=(
        Group("hooked", HOOKED, terminate_hook=True),
        Group("plain", PLAIN),
    ),
    workloads=(deployment("web", 144, 5), daemonset("cni")),
    foreign_clusters=("somebody-elses",),
)


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """The sandbox, without faults. What functions did in all of it, their roles must grant."""
    state = tmp_path_factory.mktemp("sandbox")
    options = {"lambda": ["--retry-delay", "1"]}
    with Sandbox.start(WORLD, state_dir=state, options=options) as sandbox:
        yield Rehearsal(sandbox)
        hold_to_what_is_granted(sandbox)


@pytest.fixture(autouse=True)
def without_faults(rehearsal: Rehearsal) -> Iterator[None]:
    """Every test begins and leaves the sandbox without faults."""
    yield
    for part in ("kubernetes", "aws", "lambda"):
        rehearsal.sandbox.faults(part, [])
