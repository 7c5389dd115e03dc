"""Whether a kubelet starts, and how it registers."""

from typing import Any

import pytest
from leeway_sandbox.user_data import kubelet
from leeway_sandbox.user_data.configuration import BootError, Taint


@pytest.mark.parametrize(
    "label",
    [
        "node-role.kubernetes.io/worker",
        "app.kubernetes.io/name",
        "kubernetes.io/role",
        "node-restriction.kubernetes.io/team",
        "topology.kubernetes.io/rack",
        "k8s.io/cloud",
        "cluster.x-k8s.io.k8s.io/a",
    ],
)
def test_a_label_that_a_kubelet_may_not_set_ends_it(label: str) -> None:
    with pytest.raises(BootError, match=f"labels specified with --node-labels: {label}"):
        kubelet.start({}, [f"--node-labels=a=b,{label}=x"])


@pytest.mark.parametrize(
    "label",
    [
        "team",
        "karpenter.sh/capacity-type",
        "eks.amazonaws.com/nodegroup",
        "node.kubernetes.io/pool",
        "sub.node.kubernetes.io/pool",
        "kubelet.kubernetes.io/x",
        "topology.kubernetes.io/zone",
        "mykubernetes.io/a",
    ],
)
def test_every_other_label_is_registered(label: str) -> None:
    configuration, _ = kubelet.start({}, ["--node-labels", f"{label}=x"])
    assert configuration.labels == {label: "x"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--container-runtime=remote"], "unknown flag: --container-runtime"),
        (["--network-plugin", "cni"], "unknown flag: --network-plugin"),
        (["--max-pods=many"], "--max-pods: expected a number"),
        (["--max-pods"], "flag needs an argument: --max-pods"),
        (["--max-pods=-1"], "maxPods must not be a negative number"),
        (["--serialize-image-pulls=maybe"], "expected true or false"),
        (["--sync-frequency=1 minute"], "--sync-frequency: expected a duration"),
        (["stray"], "unknown command 'stray'"),
        (["--hostname-override=me"], "authenticates it by the private DNS name"),
        (["--register-node=false"], "does not register the node"),
        (["--node-labels=-a=b"], "invalid label key '-a'"),
        (["--node-labels=a=b c"], "invalid value of label a"),
        ([f"--node-labels=a={'x' * 64}"], "invalid value of label a"),
        (["--register-with-taints=key=value"], "invalid taint 'key=value'"),
        (["--register-with-taints=key=value:NoRun"], "invalid effect of taint key"),
        (["--kube-reserved=cpu"], "malformed pair"),
        (["--kube-reserved=gpu=1"], "cannot reserve 'gpu'"),
        (["--eviction-hard=memory.available<5 percent"], "is no quantity"),
        (["--version"], "prints text and starts nothing"),
    ],
)
def test_a_flag_that_the_kubelet_cannot_use_ends_it(arguments: list[str], reason: str) -> None:
    with pytest.raises(BootError, match=reason):
        kubelet.start({}, arguments)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"maxPods": 20.5}, "maxPods: expected a whole number"),
        ({"maxPods": True}, "maxPods: expected a whole number, got true"),
        ({"maxPods": 2**31}, "maxPods: expected a number from"),
        ({"shutdownGracePeriod": 30}, "shutdownGracePeriod: expected a string, got the number 30"),
        ({"shutdownGracePeriod": "30"}, "expected a duration such as 30s"),
        ({"clusterDNS": "10.100.0.10"}, "clusterDNS: expected a list"),
        ({"clusterDNS": ["dns"]}, "clusterDNS: 'dns' is no IP address"),
        ({"kubeReserved": {"cpu": "1 core"}}, "kubeReserved.cpu: '1 core' is no quantity"),
        ({"systemReserved": {"gpu": "1"}}, "systemReserved: cannot reserve 'gpu'"),
        ({"evictionHard": {"disk": "1Gi"}}, "unknown eviction signal 'disk'"),
        ({"evictionSoft": {"memory.available": "1Gi"}}, "has no evictionSoftGracePeriod"),
        ({"imageGCHighThresholdPercent": 50}, "imageGCLowThresholdPercent must be less than"),
        ({"registerWithTaints": [{"key": "a", "effect": "No"}]}, "invalid effect of taint a"),
        ({"featureGates": {"A": "true"}}, "featureGates.A: expected true or false"),
    ],
)
def test_a_field_that_the_kubelet_cannot_use_ends_it(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(BootError, match=reason):
        kubelet.start(config, [])


def test_flags_win_over_the_configuration_file() -> None:
    config = {
        "maxPods": 20,
        "kubeReserved": {"cpu": "100m", "memory": "1Gi"},
        "registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
    }
    from_file, _ = kubelet.start(config, [])
    assert (from_file.max_pods, from_file.set_by_flags) == (20, ())
    assert from_file.taints == (Taint("a", "b", "NoSchedule"),)
    flags = ["--max-pods=30", "--kube-reserved=cpu=200m", "--register-with-taints=c:NoExecute"]
    from_flags, _ = kubelet.start(config, flags)
    assert (from_flags.max_pods, dict(from_flags.kube_reserved)) == (30, {"cpu": "200m"})
    assert from_flags.set_by_flags == ("kubeReserved", "maxPods")
    assert from_flags.taints == (Taint("c", "", "NoExecute"),)
