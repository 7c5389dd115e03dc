"""watch_pods deployed: a pod that fits nowhere wakes the buyer, with no right beyond its role's."""

from collections.abc import Iterator

import pytest
import yaml
from leeway_cli.main import run
from leeway_sandbox.sandbox import Sandbox
from lightkube import Client, KubeConfig
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod

from tests.end_to_end.environment import Environment, until
from tests.end_to_end.rights import granted, used

CLUSTER = "end-to-end"
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "general"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.k8s.aws",
                    "kind": "EC2NodeClass",
                    "name": "default",
                },
                "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
                ],
            }
        }
    },
}


@pytest.fixture
def pool(
    env: Environment, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A cluster with a pool; without it at the end, so that the run that watches ends, too."""
    env.sandbox.set_schedule_speed(0)
    for name, value in env.sandbox.environment().items():
        monkeypatch.setenv(name, value)
    file = tmp_path_factory.mktemp("pool") / "pool.yaml"
    file.write_text(yaml.safe_dump(POOL))
    assert run(["apply", "-f", str(file), "--cluster", CLUSTER]) == 0
    # A warm function knows the manifests of the last minute.
    env.sandbox.faults("lambda", [{"function": "*watch-pods*", "kill": "before"}])
    yield
    assert run(["delete", "-f", str(file), "--cluster", CLUSTER]) == 0
    env.sandbox.faults("lambda", [{"function": "*watch-pods*", "kill": "before"}])
    env.sandbox.set_schedule_speed(1)


def reasons_of_runs(sandbox: Sandbox) -> list[str]:
    """Return why the buyer of the cluster ran, as its log says."""
    lines = [e["line"] for e in sandbox.journal() if e["kind"] == "logs"]
    return [
        str(line["why"])
        for line in lines
        if isinstance(line, dict) and line.get("cluster") == CLUSTER and "why" in line
    ]


@pytest.mark.usefixtures("pool")
def test_a_pod_that_fits_nowhere_wakes_the_buyer(env: Environment) -> None:
    sandbox = env.sandbox
    (name,) = [s["name"] for s in sandbox.schedules() if s["name"].endswith("-watch-pods")]

    def woken(why: str) -> bool:
        return any(why in reason for reason in reasons_of_runs(sandbox))

    def started() -> bool:
        sandbox.fire(name)
        return woken("The schedule of each minute.")

    until(started)
    pod = Pod(
        metadata=ObjectMeta(name="nowhere", namespace="default"),
        spec=PodSpec(
            containers=[Container(name="c", image="pause")], nodeSelector={"nowhere": "true"}
        ),
    )
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        kube.create(pod)
        until(lambda: woken("The scheduler found no node for 1 new pod."))
        kube.delete(Pod, "nowhere", namespace="default", grace_period=0)
    assert used(sandbox, "WatchPodsRole") == {"watch pods"} <= granted("leeway-watch")
