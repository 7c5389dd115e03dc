"""Newer fields of Karpenter's v1 API, and the conversion of v1beta1."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from leeway.manifests.documents import read_documents
from leeway.manifests.node_pool import NodePool, pools_of
from leeway.manifests.reading import interpret, kinds_called, read_manifests, read_stored
from leeway.selection.labels import HYPERVISOR, TENANCY
from leeway.selection.offers.allocatable import GIB, AmiFamily, NodeClass
from leeway.selection.pods import Taint
from leeway_cli.manifests.changes import Change, plan_change

from tests.manifests.texts import node_class, pool, problems, read
from tests.wrong_shapes import WRONG, paths, replaced

CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: web}
spec:
"""
OLD_CLASS = CLASS.replace("/v1\n", "/v1beta1\n")
OLD_POOL = """\
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: web}
spec:
  weight: 10
  limits: {cpu: "1000"}
  template:
    metadata: {labels: {team: web}}
    spec:
      nodeClassRef: {apiVersion: karpenter.k8s.aws/v1beta1, kind: EC2NodeClass, name: web}
      requirements:
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m], minValues: 2}
      taints: [{key: team, value: web, effect: NoSchedule}]
      startupTaints: [{key: cni, effect: NoExecute}]
      kubelet: {maxPods: 20}
  disruption: {consolidationPolicy: WhenUnderutilized, expireAfter: 24h}
"""
PROVISIONER = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: web}
spec: {kubeletConfiguration: {KUBELET}}
"""
TEMPLATE = """\
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: web}
spec:
"""


def warnings(*texts: str) -> list[str]:
    return [str(warning) for warning in read(*texts).warnings]


def refusal(text: str) -> str:
    (problem,) = read_manifests(text, "pools.yaml").problems
    return str(problem)


def v1_pool(template: str) -> str:
    return (
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: web}\n"
        f"spec: {{template: {{{template}}}}}\n"
    )


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (
            "placementGroupSelector: {name: training}",
            "spec.placementGroupSelector: expected no placement group: Leeway launches no nodes in",
        ),
        (
            "cpuOptions: {nestedVirtualization: enabled}",
            "spec.cpuOptions.nestedVirtualization: expected disabled: Leeway does not know which",
        ),
        ("cpuOptions: {threadsPerCore: 1}", "spec.cpuOptions.threadsPerCore: unknown field"),
        (
            "networkInterfaces: [{networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}]",
            "spec.networkInterfaces: expected only the primary interface (networkCardIndex 0,",
        ),
        (
            "connectionTracking: {}",
            "spec.connectionTracking: expected tcpEstablishedTimeout, udpStreamTimeout or udpTime",
        ),
        (
            "connectionTracking: {udpTimeout: 61}",
            "spec.connectionTracking.udpTimeout: expected at most 60, got 61",
        ),
    ],
)
def test_what_leeway_would_not_launch_is_refused_in_one_line(field: str, said: str) -> None:
    found = refusal(CLASS + f"  {field}\n")
    assert found.startswith(f"pools.yaml:5: {said}")
    assert "\n" not in found


@pytest.mark.parametrize(
    "field",
    [
        "placementGroupSelector: null",
        "cpuOptions: {nestedVirtualization: disabled}",
        "cpuOptions: {}",
        "networkInterfaces: []",
        "networkInterfaces: [{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}]",
        "connectionTracking: {tcpEstablishedTimeout: 3600, udpStreamTimeout: 60, udpTimeout: 30}",
    ],
)
def test_what_leeway_launches_anyway_is_accepted_without_a_warning(field: str) -> None:
    assert not warnings(CLASS + f"  {field}\n")


def test_timeouts_of_connections_need_types_of_the_nitro_system() -> None:
    of_class = v1_pool("spec: {nodeClassRef: {name: web}}")
    tracked = pool(of_class, CLASS + "  connectionTracking: {udpTimeout: 45}\n")
    assert str(tracked.requirements[HYPERVISOR]).endswith("In [nitro]")
    assert HYPERVISOR not in pool(of_class, CLASS + "  role: nodes\n").requirements


@pytest.mark.parametrize(
    ("operator", "values", "refused"),
    [
        ("In", "[default]", False),
        ("In", "[default, dedicated]", False),
        ("NotIn", "[dedicated]", False),
        ("Exists", "[]", False),
        ("In", "[dedicated]", True),
        ("NotIn", "[default]", True),
    ],
)
def test_dedicated_tenancy_is_refused(operator: str, values: str, refused: bool) -> None:
    asked = f"[{{key: {TENANCY}, operator: {operator}, values: {values}}}]"
    text = v1_pool(f"spec: {{requirements: {asked}}}")
    if refused:
        assert "expected the tenancy default: Leeway knows the prices" in refusal(text)
    else:
        assert not warnings(text)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (f"{TENANCY}: dedicated", "expected the tenancy default"),
        ("karpenter.k8s.aws/placement-group-id: pg-1", "Leeway launches no nodes in placement"),
    ],
)
def test_a_label_that_the_nodes_would_not_live_up_to_is_refused(label: str, said: str) -> None:
    assert said in refusal(v1_pool(f"metadata: {{labels: {{{label}}}}}"))


def test_the_balanced_consolidation_policy_is_accepted() -> None:
    text = (
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: web}\n"
        "spec: {disruption: {consolidationPolicy: Balanced, consolidateAfter: 5m}}\n"
    )
    assert not warnings(text)


def test_a_pool_of_v1beta1_is_converted_to_v1() -> None:
    found = pool(OLD_POOL, OLD_CLASS + "  amiFamily: Bottlerocket\n  role: node\n")
    category = found.requirements["karpenter.k8s.aws/instance-category"]
    assert category.values == {"c", "m"}
    assert category.min_values == 2
    assert found.labels["team"] == "web"
    assert found.taints == (Taint("team", "web", "NoSchedule"),)
    assert found.startup_taints == (Taint("cni", "", "NoExecute"),)
    assert (found.weight, found.limits) == (10, {"cpu": 1_000_000})
    assert found.node_class.name == "web"
    assert found.node_class.family is AmiFamily.BOTTLEROCKET
    assert found.node_class.kubelet.max_pods == 20


def test_the_disruption_settings_of_v1beta1_are_converted_to_v1() -> None:
    meant = read(OLD_POOL).written[0].manifest
    assert isinstance(meant, NodePool)
    assert meant.spec.disruption.consolidation_policy == "WhenEmptyOrUnderutilized"
    assert str(meant.spec.template.spec.expire_after) == "1 day, 0:00:00"
    assert not warnings(OLD_POOL)


@pytest.mark.parametrize(
    ("disruption", "said"),
    [
        ("{consolidationPolicy: WhenEmpty}", "expected consolidateAfter with WhenEmpty"),
        ("{consolidateAfter: 30s}", "expected consolidateAfter only with WhenEmpty"),
        (
            "{consolidationPolicy: WhenEmptyOrUnderutilized}",
            "expected 'WhenEmpty' or 'WhenUnderutilized'",
        ),
    ],
)
def test_disruption_settings_that_v1beta1_refuses_are_errors(disruption: str, said: str) -> None:
    written = "{consolidationPolicy: WhenUnderutilized, expireAfter: 24h}"
    (problem,) = problems(OLD_POOL.replace(written, disruption))
    assert said in problem


@pytest.mark.parametrize(
    "text",
    [
        OLD_POOL.replace("maxPods: 20", "KUBELET"),
        PROVISIONER,
    ],
)
def test_kubelet_durations_are_preserved_by_the_conversion(text: str) -> None:
    kubelet = (
        "evictionSoft: {memory.available: 500Mi}, evictionSoftGracePeriod: {memory.available: 1m}"
    )
    meant = read(text.replace("KUBELET", kubelet)).written[0].manifest
    assert isinstance(meant, NodePool)
    found = meant.kubelet()
    assert found is not None
    assert found.eviction_soft_grace_period == {"memory.available": timedelta(minutes=1)}


def test_a_node_class_of_v1beta1_lets_pods_reach_the_metadata_service() -> None:
    found = node_class(OLD_CLASS + "  amiFamily: AL2023\n  metadataOptions: {httpTokens: optional}")
    assert found.spec.metadata_options.http_put_response_hop_limit == 2
    assert found.spec.metadata_options.http_tokens == "optional"
    assert (
        node_class(CLASS + "  role: node\n").spec.metadata_options.http_put_response_hop_limit == 1
    )


@pytest.mark.parametrize("text", [OLD_CLASS, TEMPLATE])
def test_ubuntu_is_converted_to_al2_with_its_volume(text: str) -> None:
    found = node_class(text + "  amiFamily: Ubuntu\n")
    assert found.spec.family is AmiFamily.AL2
    assert found.storage(AmiFamily.AL2) == 20 * GIB
    read_as_al2, no_image = warnings(text + "  amiFamily: Ubuntu\n")
    assert read_as_al2.startswith("pools.yaml:5: spec.amiFamily: Ubuntu is converted to AL2")
    assert "expected amiSelectorTerms: Leeway has no default image for Ubuntu" in no_image


def test_a_converted_ubuntu_class_keeps_its_images_and_volumes() -> None:
    text = OLD_CLASS + (
        "  amiFamily: Ubuntu\n  amiSelectorTerms: [{id: ami-1}]\n"
        "  blockDeviceMappings: [{rootVolume: true, ebs: {volumeSize: 50Gi}}]\n"
    )
    assert node_class(text).storage(AmiFamily.AL2) == 50 * GIB
    assert len(warnings(text)) == 1


OLD_CLASS_WITH_ALL = (
    OLD_CLASS
    + """\
  amiFamily: Ubuntu
  role: node
  amiSelectorTerms: [{tags: {a: b}}]
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{name: nodes}]
  metadataOptions: {httpTokens: optional}
  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 20Gi}}]
"""
)


@pytest.mark.parametrize("text", [OLD_POOL, OLD_CLASS_WITH_ALL, TEMPLATE + "  amiFamily: Ubuntu"])
def test_a_wrong_value_at_any_path_is_read_or_reported_with_its_path(text: str) -> None:
    (value,) = read_documents(text, "pools.yaml").values
    document = value.plain()
    places = list(paths(document))
    assert places
    for path in places:
        for wrong in WRONG:
            found = interpret(replaced(document, path, wrong), "pools.yaml", value.line_of)
            if not found.written:
                assert all(str(each).startswith("pools.yaml:") for each in found.problems)
                assert found.problems
            else:
                pools_of([found.written[0].manifest])


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        (OLD_POOL, "nodepool.karpenter.sh"),
        (OLD_CLASS_WITH_ALL, "ec2nodeclass.karpenter.k8s.aws"),
        (PROVISIONER.replace("KUBELET", "maxPods: 20"), "nodepool.karpenter.sh"),
        (TEMPLATE + "  amiFamily: AL2023\n", "ec2nodeclass.karpenter.k8s.aws"),
    ],
)
def test_a_superseded_version_is_stored_as_v1_beside_the_manifest_of_the_user(
    text: str, resource: str
) -> None:
    (written,) = read(text).written
    assert written.title == f"{resource}/web"
    assert json.loads(written.original) == yaml.safe_load(text)
    (again,) = read_stored(written.body, "web").written
    assert (again.manifest, again.original) == (written.manifest, "")
    # Functions read only v1.
    (problem,) = read_stored(written.original, "web").problems
    assert problem.field in ("apiVersion", "kind")


def test_a_change_of_the_manifest_as_written_is_a_change() -> None:
    (written,) = read(PROVISIONER.replace("KUBELET", "maxPods: 20")).written
    now = datetime(2026, 11, 23, tzinfo=UTC)
    stored = plan_change(written, (), now).after
    assert stored is not None
    assert stored.as_written == written.original
    assert plan_change(written, (stored,), now).change is Change.UNCHANGED
    by_hand = interpret(json.loads(written.body), "web").written[0]
    after = plan_change(by_hand, (stored,), now).after
    assert after is not None
    assert (after.body, after.as_written) == (stored.body, stored.body)


def test_a_kind_with_several_versions_means_the_latest() -> None:
    for word in ("nodepools", "ec2nodeclass"):
        assert kinds_called(word)[-1].api_version.endswith("/v1")


def test_all_versions_of_a_pool_are_the_same_pool() -> None:
    new = OLD_POOL.replace("v1beta1", "v1")
    assert read(OLD_POOL).written[0].title == "nodepool.karpenter.sh/web"
    assert any("apiVersion" in each or "unknown field" in each for each in problems(new))


def test_a_pool_of_v1beta1_without_a_node_class_uses_the_defaults() -> None:
    assert pool(OLD_POOL.replace("kubelet: {maxPods: 20}", "")).node_class == NodeClass(name="web")
