"""The user data of each family, read back by parsers that share nothing with Leeway."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from leeway.bootstrap.node import UserDataError, templates_of
from leeway.bootstrap.user_data import LARGEST, UserData, render
from leeway.manifests.reading import read_manifests
from leeway.selection.offers.allocatable import allocatable, capacity
from leeway.selection.resources import Resources

from tests.bootstrap.nodes import CLUSTER, FULL, IPV6, machine_of, rendered, template, users
from tests.bootstrap.readers import (
    NODE_CONFIG,
    SHELL,
    flags,
    mime_parts,
    node_config,
    options,
    pairs,
    powershell_tokens,
    run_bash,
)

LINUX = ("AL2023", "AL2", "Bottlerocket")
WINDOWS = ("Windows2019", "Windows2022", "Windows2025")


def codes(data: UserData) -> list[str]:
    return [warning.code for warning in data.warnings]


def kubelet_of(family: str, data: UserData, folder: Path) -> dict[str, Any]:
    """The settings of a node's kubelet, by the names of its configuration file; amounts and
    numbers as text."""
    if family == "AL2023":
        kubelet = node_config(data.text)["spec"]["kubelet"]
        taints = [
            f"{t['key']}={t.get('value', '')}:{t['effect']}"
            for t in kubelet["config"].get("registerWithTaints", ())
        ]
        labels = pairs(flags(kubelet.get("flags", []))["--node-labels"])
        return {**kubelet["config"], "labels": labels, "taints": taints}
    if family == "Bottlerocket":
        settings = tomllib.loads(data.text)["settings"]["kubernetes"]
        return {
            "maxPods": settings["max-pods"],
            "kubeReserved": settings["kube-reserved"],
            "systemReserved": settings.get("system-reserved", {}),
            "evictionHard": settings["eviction-hard"],
            "labels": settings["node-labels"],
            "taints": [
                f"{key}={value}"
                for key, values in settings["node-taints"].items()
                for value in values
            ],
        }
    if family == "AL2":
        script = mime_parts(data.text)[-1].payload
        _, given = options(run_bash(script, folder))
        words = given["--kubelet-extra-args"].split(" ")
    else:
        words = windows_options(data)["-KubeletExtraArgs"].split(" ")
    given = flags(words)
    return {
        "maxPods": int(given["--max-pods"]),
        "kubeReserved": pairs(given["--kube-reserved"]),
        "systemReserved": pairs(given.get("--system-reserved", "")),
        "evictionHard": pairs(given["--eviction-hard"], "<"),
        "labels": pairs(given["--node-labels"]),
        "taints": [
            one if "=" in one else one.replace(":", "=:")
            for one in given["--register-with-taints"].split(",")
        ],
    }


def windows_options(data: UserData) -> dict[str, str]:
    """The parameters that Start-EKSBootstrap.ps1 gets."""
    lines = data.text.splitlines()
    end = lines.index("</powershell>")
    call, script, *parameters = powershell_tokens(lines[end - 1])
    assert (call, script) == ("&", "$EKSBootstrapScriptFile")
    assert lines[end - 2].startswith("[string]$EKSBootstrapScriptFile = ")
    return dict(zip(parameters[::2], parameters[1::2], strict=True))


@pytest.mark.parametrize("family", [*LINUX, *WINDOWS])
@pytest.mark.parametrize("settings", [{}, FULL], ids=["plain", "full"])
@pytest.mark.parametrize("instance_type", ["m5.large", "m5d.24xlarge"])
def test_a_node_leaves_to_pods_what_selection_counted(
    family: str, settings: dict[str, Any], instance_type: str, tmp_path: Path
) -> None:
    labels = {"team": "shop", **settings.get("labels", {})}
    pool = settings.get("pool", {"taints": [{"key": "a", "effect": "NoSchedule"}]})
    of = template(family, **{**settings, "labels": labels, "pool": pool})
    machine, node_class = machine_of(instance_type), of.pool.node_class
    kubelet = kubelet_of(family, render(of, CLUSTER, machine), tmp_path)

    whole = capacity(machine, node_class)
    thresholds = kubelet["evictionHard"]
    memory, storage = thresholds["memory.available"], thresholds["nodefs.available"]
    shares = {
        "memory": (memory, whole.of("memory")),
        "storage": (storage, whole.of("ephemeral-storage")),
    }
    kept = {
        name: -(-int(text[:-1]) * of // 100)
        if text.endswith("%")
        else Resources.parsed({"memory": text}).of("memory")
        for name, (text, of) in shares.items()
    }
    left = whole - Resources.parsed(kubelet["kubeReserved"])
    left = left - Resources.parsed(kubelet.get("systemReserved", {}))
    left = left - Resources({"memory": kept["memory"], "ephemeral-storage": kept["storage"]})
    counted = allocatable(machine, node_class, whole)
    assert kubelet["maxPods"] == counted.of("pods")
    for resource in ("cpu", "memory", "ephemeral-storage"):
        assert left.of(resource) == counted.of(resource)


@pytest.mark.parametrize("family", [*LINUX, *WINDOWS])
def test_the_kubelet_registers_labels_and_all_taints(family: str, tmp_path: Path) -> None:
    data = rendered(family, **FULL)
    kubelet = kubelet_of(family, data, tmp_path)
    assert kubelet["labels"] == {
        "team": "shop",
        "empty": "",
        "example.com/ring": "inner",
        "leeway.sh/launched": "true",
        "node.kubernetes.io/role-of-mine": "web",
    }
    assert data.labels_for_admission == {
        "karpenter.k8s.aws/ec2nodeclass": "web",
        "karpenter.sh/nodepool": "web",
        "node-restriction.kubernetes.io/tier": "front",
    }
    assert kubelet["taints"] == [
        "dedicated=web:NoSchedule",
        "dedicated=1e3:NoExecute",
        "example.com/agent-not-ready=:NoExecute",
    ]
    assert data.taints_for_admission == ()


def test_al2023_names_the_cluster_and_the_disks() -> None:
    spec = node_config(rendered("AL2023", raid0=True).text)["spec"]
    assert spec["cluster"] == {
        "name": "prod",
        "apiServerEndpoint": CLUSTER.endpoint,
        "certificateAuthority": CLUSTER.certificate_authority,
        "cidr": "172.20.0.0/16",
    }
    assert spec["instance"] == {"localStorage": {"strategy": "RAID0"}}
    assert spec["kubelet"]["config"]["clusterDNS"] == ["172.20.0.10"]


def test_nodeadm_decides_the_time_to_shut_down_unless_the_node_class_sets_it() -> None:
    plain = node_config(rendered("AL2023").text)["spec"]["kubelet"]["config"]
    assert [name for name in plain if name.startswith("shutdown")] == []
    asked = rendered("AL2023", kubelet={"shutdownGracePeriod": "2m"}).text
    assert node_config(asked)["spec"]["kubelet"]["config"]["shutdownGracePeriod"] == "2m"


PASSED_ON: dict[str, Any] = {
    "registryPullQPS": 10,
    "topologyManagerPolicy": "single-numa-node",
    "featureGates": {"KubeletPSI": True},
    "memoryThrottlingFactor": 0.8,
    "allowedUnsafeSysctls": ["net.core.somaxconn"],
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "evictionMinimumReclaim": {"memory.available": "0Mi"},
    "crashLoopBackOff": {"maxContainerRestartPeriod": "1m"},
    "aFieldOfTheNextRelease": {"mode": ["a: b", True, 5]},
}


def test_al2023_gets_the_other_fields_of_the_kubelets_configuration() -> None:
    data = rendered("AL2023", kubelet={**PASSED_ON, "maxPods": 20, "seccompDefault": None})
    config = node_config(data.text)["spec"]["kubelet"]["config"]
    assert {name: config.get(name) for name in PASSED_ON} == PASSED_ON
    assert config["maxPods"] == 20
    assert "seccompDefault" not in config
    assert codes(data) == []


@pytest.mark.parametrize("family", ["AL2", "Bottlerocket", "Windows2022"])
def test_a_field_that_only_al2023_gets_is_named_on_other_families(family: str) -> None:
    data = rendered(family, kubelet={"registryPullQPS": 10})
    (warning,) = [one for one in data.warnings if "leaves" in one.message]
    assert "spec.kubelet.registryPullQPS" in warning.message
    assert family in warning.message
    assert "registry" not in data.text


@pytest.mark.parametrize("family", ["AL2023", "AL2"])
@pytest.mark.parametrize("end", ["--//\n", "--//", "--//  \n\n", "--//--", "--//--\n"])
def test_an_archive_may_end_with_an_open_boundary(family: str, end: str) -> None:
    own = (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n'
        f"--//\nContent-Type: {SHELL}\n\n#!/bin/bash\necho one\n\n{end}"
    )
    first, last = mime_parts(rendered(family, own).text)
    assert (first.content_type, first.payload) == (SHELL, "#!/bin/bash\necho one\n")
    assert last.content_type in {NODE_CONFIG, SHELL}


OWN_LABELS = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    flags:
      - --node-labels=karpenter.sh/nodepool=other,team=mine,karpenter.sh/registered=true
      - --node-labels
      - leeway.sh/pool=other,ring=outer
      - '--node-labels "karpenter.k8s.aws/instance-family=m1,zone=a"'
      - --register-with-taints=karpenter.sh/mine=true:NoSchedule
  containerd:
    config: |
      # kept
      [plugins]
"""


def test_labels_that_name_the_pool_are_leeways_on_al2023() -> None:
    data = rendered("AL2023", OWN_LABELS)
    spec = node_config(data.text)["spec"]
    text = ",".join(spec["kubelet"]["flags"])
    for key in ("nodepool", "registered", "leeway.sh/pool", "instance-family"):
        assert key not in text
    for kept in ("team=mine", "ring=outer", "zone=a", "karpenter.sh/mine=true:NoSchedule"):
        assert kept in text
    assert spec["containerd"]["config"] == "# kept\n[plugins]\n"
    (warning,) = [one for one in data.warnings if "leaves" in one.message]
    assert "karpenter.sh/nodepool, karpenter.sh/registered, leeway.sh/pool" in warning.message
    assert data.labels_for_admission["karpenter.sh/nodepool"] == "web"


def test_labels_that_name_the_pool_are_leeways_on_bottlerocket() -> None:
    own = '[settings.kubernetes.node-labels]\n"karpenter.sh/nodepool" = "other"\nteam = "mine"\n'
    data = rendered("Bottlerocket", own)
    settings = tomllib.loads(data.text)["settings"]["kubernetes"]
    assert settings["node-labels"] == {"team": "mine", "leeway.sh/launched": "true"}
    (warning,) = data.warnings
    assert (warning.code, "karpenter.sh/nodepool" in warning.message) == ("SettingLeftOut", True)


def test_bottlerocket_does_not_get_settings_for_which_it_would_refuse_all() -> None:
    own = "[settings.kubernetes]\nno-such = 1\nstandalone-mode = true\nlog-level = 3\n"
    data = rendered("Bottlerocket", own)
    settings = tomllib.loads(data.text)["settings"]["kubernetes"]
    assert settings["log-level"] == 3
    assert not {"no-such", "standalone-mode"} & settings.keys()
    (warning,) = data.warnings
    assert warning.code == "SettingLeftOut"
    assert "settings.kubernetes.no-such, settings.kubernetes.standalone-mode" in warning.message


@pytest.mark.parametrize("family", LINUX)
def test_local_disks_are_set_up_only_on_a_type_that_has_some(family: str) -> None:
    with_disks = rendered(family, raid0=True, instance_type="m5d.large").text
    unknown = rendered(family, raid0=True, instance_type=None).text
    without = rendered(family, raid0=True, instance_type="m5.large").text
    for words in ("RAID0", "--local-disks raid0", 'ephemeral-storage",\n        "init'):
        assert (words in with_disks) == (words in unknown)
        assert words not in without
    assert with_disks != without


def test_the_users_part_comes_first_and_nodeadm_merges_it() -> None:
    data = rendered("AL2023", users("nodeconfig.yaml"), **FULL)
    assert [part.content_type for part in mime_parts(data.text)] == [NODE_CONFIG, NODE_CONFIG]
    kubelet = node_config(data.text)["spec"]["kubelet"]
    assert kubelet["config"]["shutdownGracePeriod"] == "5s"
    assert "shutdownGracePeriodCriticalPods" not in kubelet["config"]
    assert kubelet["config"]["maxPods"] == 16
    assert kubelet["config"]["kubeReserved"]["cpu"] == "200m"
    # A flag wins over the configuration file.
    given = flags(kubelet["flags"])
    assert given["--max-pods"] == "16"
    assert pairs(given["--node-labels"])["own"] == "label"
    assert pairs(given["--node-labels"])["team"] == "shop"
    assert codes(data) == ["SettingLeftOut"]


def test_the_users_reserved_amounts_have_precedence_over_computed_ones_only() -> None:
    own = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: "
    own += (
        "{kubeReserved: {cpu: 1}, evictionHard: {nodefs.available: 20%}, clusterDNS: [1.2.3.4]}}}"
    )
    plain = rendered("AL2023", own)
    config = node_config(plain.text)["spec"]["kubelet"]["config"]
    assert config["kubeReserved"] == {"cpu": 1, "memory": "574Mi", "ephemeral-storage": "1Gi"}
    assert config["evictionHard"]["nodefs.available"] == "20%"
    assert config["clusterDNS"] == ["1.2.3.4"]
    assert codes(plain) == ["UserDataNotCounted"]

    of_class = rendered("AL2023", own, kubelet={"kubeReserved": {"cpu": "2"}})
    config = node_config(of_class.text)["spec"]["kubelet"]["config"]
    assert config["kubeReserved"]["cpu"] == "2"


@pytest.mark.parametrize(
    "own",
    [
        "{config: {registerWithTaints: [{key: mine, effect: NoSchedule}]}}",
        "{flags: ['--register-with-taints=mine:NoSchedule']}",
    ],
)
def test_taints_of_user_data_are_never_the_nodes(own: str) -> None:
    own = f"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {{kubelet: {own}}}\n"
    without = rendered("AL2023", own)
    assert codes(without) == ["SettingLeftOut"]
    given = flags(node_config(without.text)["spec"]["kubelet"]["flags"])
    assert given["--register-with-taints"] == ""
    pool = {"taints": [{"key": "ours", "effect": "NoSchedule"}]}
    kubelet = node_config(rendered("AL2023", own, pool=pool).text)["spec"]["kubelet"]
    assert [taint["key"] for taint in kubelet["config"]["registerWithTaints"]] == ["ours"]
    if "--register-with-taints" in own:
        assert flags(kubelet["flags"])["--register-with-taints"] == "ours:NoSchedule"


def test_the_injected_user_data_of_a_managed_node_group_is_kept_as_it_is() -> None:
    own = users("al2023-injected-userdata.txt")
    text = rendered("AL2023", own).text
    first, last = mime_parts(text)
    assert first == mime_parts(own)[0]
    spec = node_config(text)["spec"]
    assert spec["cluster"]["name"] == "prod"
    assert spec["kubelet"]["config"]["featureGates"] == {
        "DisableKubeletCloudCredentialProviders": True
    }
    assert spec["kubelet"]["config"]["maxPods"] == 29
    assert last.content_type == NODE_CONFIG


@pytest.mark.parametrize("family", ["AL2023", "AL2"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_scripts_reach_bash_with_unix_lines(family: str, line_end: str) -> None:
    own = users("script.sh")
    first, *others = mime_parts(rendered(family, own.replace("\n", line_end)).text)
    assert (first.content_type, first.payload) == (SHELL, own)
    assert len(others) == 1


def test_a_script_without_an_interpreter_causes_a_warning() -> None:
    assert "NodeMayNotJoin" in codes(rendered("AL2023", "echo hello\n"))
    assert "NodeMayNotJoin" not in codes(rendered("AL2023", "#!/bin/sh\necho hello\n"))


def test_al2_passes_each_value_after_a_space(tmp_path: Path) -> None:
    script = mime_parts(rendered("AL2", **FULL).text)[-1].payload
    name, given = options(run_bash(script, tmp_path))
    assert name == "prod"
    assert given.pop("--kubelet-extra-args").startswith("--max-pods=16 ")
    assert given == {
        "--apiserver-endpoint": CLUSTER.endpoint,
        "--b64-cluster-ca": CLUSTER.certificate_authority,
        "--dns-cluster-ip": "169.254.20.10",
        "--container-runtime": "containerd",
        "--use-max-pods": "false",
        "--local-disks": "raid0",
    }
    assert codes(rendered("AL2"))[0] == "Al2EndOfLife"


def test_al2_joins_an_ipv6_cluster(tmp_path: Path) -> None:
    script = mime_parts(rendered("AL2", cluster=IPV6).text)[-1].payload
    _, given = options(run_bash(script, tmp_path))
    assert given["--ip-family"] == "ipv6"
    assert given["--service-ipv6-cidr"] == "fd30:1c53:5f8a::/108"
    assert given["--dns-cluster-ip"] == "fd30:1c53:5f8a::a"


def test_bottlerocket_keeps_the_users_tables_and_replaces_the_identity() -> None:
    data = rendered("Bottlerocket", users("settings.toml"), labels={"team": "shop"})
    theirs = tomllib.loads(users("settings.toml"))["settings"]
    ours = tomllib.loads(data.text)["settings"]
    for name in ("network", "bootstrap-containers"):
        assert ours[name] == theirs[name]
    kubernetes = ours["kubernetes"]
    assert kubernetes["api-server"] == CLUSTER.endpoint
    assert kubernetes["cluster-name"] == "prod"
    assert kubernetes["cluster-certificate"] == CLUSTER.certificate_authority
    assert kubernetes["max-pods"] == 29
    assert kubernetes["cluster-dns-ip"] == ["8.8.8.8", "8.8.4.4"]
    assert kubernetes["allowed-unsafe-sysctls"] == ["net.core.somaxconn"]
    assert kubernetes["eviction-hard"]["memory.available"] == "12%"
    assert kubernetes["node-labels"] == {
        "own": "label",
        "team": "shop",
        "leeway.sh/launched": "true",
    }
    assert "node-taints" not in kubernetes
    assert ours["autoscaling"] == {"should-wait": False}
    assert codes(data) == ["SettingLeftOut", "UserDataNotCounted", "SettingLeftOut"]


def test_bottlerocket_settings_of_a_real_node_group_are_merged() -> None:
    settings = tomllib.loads(rendered("Bottlerocket", users("bottlerocket-settings.toml")).text)[
        "settings"
    ]
    assert settings["host-containers"] == {"admin": {"enabled": True}}
    assert settings["kubernetes"]["node-labels"]["eks.amazonaws.com/capacityType"] == "ON_DEMAND"
    assert settings["kubernetes"]["cluster-name"] == "prod"


def test_bottlerocket_gets_only_values_that_it_takes() -> None:
    off = rendered("Bottlerocket", kubelet={"evictionHard": {"memory.available": "100%"}})
    settings = tomllib.loads(off.text)["settings"]["kubernetes"]
    assert settings["eviction-hard"]["memory.available"] == "0%"
    pid = rendered("Bottlerocket", kubelet={"kubeReserved": {"pid": 1000}})
    assert "SettingLeftOut" in codes(pid)
    assert "pid" not in tomllib.loads(pid.text)["settings"]["kubernetes"]["kube-reserved"]
    with pytest.raises(UserDataError, match=r"spec.kubelet.evictionHard.memory.available"):
        rendered("Bottlerocket", kubelet={"evictionHard": {"memory.available": "1E3"}})


@pytest.mark.parametrize("name", ["p" * 64, "prod-"])
def test_a_cluster_name_that_bottlerocket_refuses_is_refused(name: str) -> None:
    cluster = replace(CLUSTER, name=name)
    assert rendered("AL2023", cluster=cluster).text
    with pytest.raises(UserDataError, match="cluster: name: expected at most 63 characters"):
        rendered("Bottlerocket", cluster=cluster)


def test_a_label_of_user_data_that_a_kubelet_may_not_set_causes_a_warning() -> None:
    own = '[settings.kubernetes.node-labels]\n"node-role.kubernetes.io/web" = ""\n'
    (warning,) = rendered("Bottlerocket", own).warnings
    assert warning.code == "NodeMayNotJoin"
    assert "node-role.kubernetes.io/web" in warning.message


@pytest.mark.parametrize("family", WINDOWS)
def test_windows_runs_the_users_script_and_then_the_bootstrap(family: str) -> None:
    data = rendered(family, users("script.ps1"))
    lines = data.text.splitlines()
    assert lines[0] == "<powershell>"
    assert lines[1:3] == users("script.ps1").splitlines()
    given = windows_options(data)
    assert given.pop("-KubeletExtraArgs").startswith("--max-pods=9 ")
    assert given == {
        "-EKSClusterName": "prod",
        "-APIServerEndpoint": CLUSTER.endpoint,
        "-Base64ClusterCA": CLUSTER.certificate_authority,
        "-DNSClusterIP": "172.20.0.10",
    }


def test_windows_keeps_one_pair_of_tags_and_the_text_outside() -> None:
    own = "<persist>true</persist>\n<PowerShell>\nWrite-Host hi\n</PowerShell>\n"
    text = rendered("Windows2022", own).text
    assert text.startswith("<powershell>\nWrite-Host hi\n[string]$EKSBootstrapScriptFile")
    assert text.endswith("\n</powershell>\n<persist>true</persist>\n")
    pair = "<powershell></powershell>"
    for broken in ("</powershell>", "<powershell>\n", pair * 2, "</powershell><powershell>"):
        with pytest.raises(UserDataError, match="one pair of <powershell> tags"):
            rendered("Windows2022", broken)


def test_windows_warns_of_what_nodes_cannot_do_and_of_what_the_cluster_needs() -> None:
    of, machine = template("Windows2022"), machine_of("m5.large")
    no_groups, needs = render(of, CLUSTER, machine).warnings
    assert "no security groups" in no_groups.message
    for need in ("Linux or Fargate", "eks:kube-proxy-windows", "enable-windows-ipam"):
        assert need in needs.message
    limits = render(of, IPV6, machine).warnings
    assert {one.code for one in limits} == {"WindowsLimits"}
    assert any("do not support IPv6" in one.message for one in limits)


def test_custom_user_data_is_as_it_is_and_admission_does_the_rest() -> None:
    own = users("script.sh").replace("\n", "\r\n")
    data = rendered("Custom", own, **FULL)
    assert data.text == own
    assert data.labels_for_admission["team"] == "shop"
    assert [taint.key for taint in data.taints_for_admission] == [
        "dedicated",
        "dedicated",
        "example.com/agent-not-ready",
    ]
    assert codes(data) == ["CustomTaintsLate"]


@pytest.mark.parametrize("family", ["AL2023", "AL2", "Windows2022", "Custom"])
def test_more_than_16_kb_are_refused_with_the_size(family: str) -> None:
    without = len(rendered(family, "#!a").text.encode()) - 3
    fits = "#!" + "a" * (LARGEST - without - 2)
    assert len(rendered(family, fits).text.encode()) == LARGEST
    with pytest.raises(UserDataError, match="16,384 bytes of user data before base64, got 16,385"):
        rendered(family, fits + "a")


def test_bytes_are_counted_and_not_characters() -> None:
    with pytest.raises(UserDataError, match="16,384 bytes"):
        rendered("Custom", "é" * 8193)


def test_two_values_of_one_taint_are_refused() -> None:
    pool = {
        "taints": [{"key": "a", "value": "1", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "a", "value": "2", "effect": "NoSchedule"}],
    }
    with pytest.raises(UserDataError, match="taint a:NoSchedule: expected one value"):
        rendered("AL2023", pool=pool)
    pool["startupTaints"] = pool["taints"]
    (taint,) = node_config(rendered("AL2023", pool=pool).text)["spec"]["kubelet"]["config"][
        "registerWithTaints"
    ]
    assert taint == {"key": "a", "value": "1", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("family", "own", "expected"),
    [
        ("AL2023", "apiVersion: node.eks.aws/v1alpha1\nspec: [", "expected a NodeConfig in YAML"),
        ("AL2023", "MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n", "a boundary"),
        ("AL2023", 'Content-Type: multipart/mixed; boundary="x"\n\nno part', "boundary --x"),
        ("AL2023", 'Content-Type: multipart/mixed; boundary="x"\n--x\n', "an empty line"),
        ("AL2", 'Content-Type: multipart/mixed; boundary="x"\n\n--x\nbody\n--x--', "in part 1"),
        ("Bottlerocket", "[settings", "expected settings in TOML"),
        ("Bottlerocket", "settings = 1", "expected settings to be a table"),
        ("Bottlerocket", "[settings]\nkubernetes = []", "settings.kubernetes to be a table"),
        ("Bottlerocket", "[settings.kubernetes]\nnode-labels = 5", "node-labels to be a table"),
        ("Bottlerocket", "a = " + "[" * 5000 + "]" * 5000, "not nested as deep"),
        ("Custom", "\ud800", "UTF-8"),
    ],
)
def test_user_data_that_cannot_be_read_is_refused_in_one_line(
    family: str, own: str, expected: str
) -> None:
    of = template(family)
    with pytest.raises(UserDataError) as refused:
        render(replace(of, user_data=own), CLUSTER)
    assert expected in str(refused.value)
    assert str(refused.value).startswith("spec.userData: ")
    assert "\n" not in str(refused.value)


OLD = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: old}
spec:
  kubeletConfiguration: {maxPods: 20, evictionHard: {memory.available: 3%}}
  taints: [{key: old, effect: NoSchedule}]
  providerRef: {name: old}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: old}
spec:
  amiFamily: AL2023
  userData: "#!/bin/sh\\necho old"
"""


def test_a_provisioner_and_its_node_template_boot_as_what_they_became() -> None:
    manifests = [one.manifest for one in read_manifests(OLD, "old.yaml").written]
    (of,) = templates_of(manifests)
    text = render(of, CLUSTER, machine_of("m5.large")).text
    assert mime_parts(text)[0].payload == "#!/bin/sh\necho old"
    config = node_config(text)["spec"]["kubelet"]["config"]
    assert config["maxPods"] == 20
    assert config["evictionHard"]["memory.available"] == "3%"
    assert config["registerWithTaints"] == [{"key": "old", "effect": "NoSchedule"}]


def test_a_variant_of_the_pool_gives_its_nodes_its_labels() -> None:
    of = template("AL2023", pool={"requirements": [{"key": "ring", "operator": "Exists"}]})
    assert '"--node-labels=leeway.sh/launched=true"' in render(of, CLUSTER).text
    inner = replace(of, pool=replace(of.pool, labels={**of.pool.labels, "ring": "inner"}))
    assert '"--node-labels=leeway.sh/launched=true,ring=inner"' in render(inner, CLUSTER).text
