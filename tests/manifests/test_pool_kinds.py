"""NodePools and node classes, also of Karpenter's first API, as selection uses them."""

from fractions import Fraction
from pathlib import Path

import pytest
from leeway.manifests.node_class import PASSED, KubeletSettings
from leeway.manifests.node_pool import NodePool, pools_of, pools_without_limits
from leeway.selection.offers.allocatable import GIB, AmiFamily
from leeway.selection.pods import OnDemandShare, Taint
from leeway.selection.requirements import Requirement
from leeway.selection.resources import Resources

from tests.manifests.texts import node_class, pool, problems, read

USERS = Path(__file__).parent / "users"

POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: web
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: web}
"""
CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: web
spec:
"""
PROVISIONER = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata:
  name: old
spec:
"""
TEMPLATE = """\
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata:
  name: old
spec:
"""


def annotated(annotations: str) -> str:
    """A pool whose nodes get annotations, as YAML."""
    given = f"    metadata: {{annotations: {{{annotations}}}}}\n"
    return POOL.replace("  template:\n", f"  template:\n{given}")


def test_a_spot_provisioner_is_converted_to_a_pool() -> None:
    found = pool((USERS / "provisioner-spot.yaml").read_text())
    assert str(found.requirements) == (
        "karpenter.k8s.aws/ec2nodeclass In [default],"
        " instance-category In [c, m, r], instance-generation Gt 2, capacity-type In [spot],"
        " karpenter.sh/initialized In [true], nodepool In [default],"
        " karpenter.sh/registered In [true], arch In [amd64], os In [linux]"
    )
    assert found.limits == {"cpu": 1_000_000}
    assert found.node_class.family is AmiFamily.AL2023


def test_a_provisioner_with_instance_types_gets_no_default_categories() -> None:
    found = pool((USERS / "provisioner-gpu.yaml").read_text())
    assert found.requirements["node.kubernetes.io/instance-type"].values == {
        "p2.xlarge",
        "p3.2xlarge",
        "p3.8xlarge",
        "p3.16xlarge",
    }
    assert found.requirements["kubernetes.io/arch"].values == {"nvidia", "amd64"}
    assert "karpenter.k8s.aws/instance-category" not in found.requirements
    assert found.limits == {"cpu": 1_000_000, "memory": 1000 * GIB, "nvidia.com/gpu": 10}


def with_share(percentage: str | None, base: str | None = None) -> str:
    """A NodePool with the annotations of an on-demand share."""
    given = {"percentage-above-base": percentage, "base": base}
    said = [f"leeway.sh/on-demand-{key}: '{value}'" for key, value in given.items() if value]
    annotations = f"  annotations: {{{', '.join(said)}}}"
    return POOL.replace("  name: web\nspec", f"  name: web\n{annotations}\nspec")


BERLIN = '"timezone": "Europe/Berlin", "start": "30 7 * * 1-5", "end": "0 19 * * 1-5"'


def with_schedule(text: str) -> str:
    """A NodePool with the annotation of a schedule."""
    said = f"  annotations:\n    leeway.sh/schedule: '{text}'"
    return POOL.replace("  name: web\nspec", f"  name: web\n{said}\nspec")


def test_a_pool_has_the_windows_outside_of_which_it_hibernates() -> None:
    (found,) = (one.manifest for one in read(with_schedule(f"[{{{BERLIN}}}]")).written)
    assert isinstance(found, NodePool)
    (window,) = found.windows()
    assert (window.start.expression, window.timezone.key) == ("30 7 * * 1-5", "Europe/Berlin")
    assert not read(with_schedule(f"[{{{BERLIN}}}]")).warnings


def test_windows_of_one_zone_that_overlap_get_a_warning() -> None:
    late = BERLIN.replace("30 7", "30 18").replace("0 19", "0 22")
    (said,) = {str(one) for one in read(with_schedule(f"[{{{BERLIN}}},{{{late}}}]")).warnings}
    assert "windows [0] and [1] overlap: the pool is awake in both" in said
    after = late.replace("30 18", "0 19")
    assert not read(with_schedule(f"[{{{BERLIN}}},{{{after}}}]")).warnings
    abroad = late.replace("Europe/Berlin", "America/New_York")
    assert not read(with_schedule(f"[{{{BERLIN}}},{{{abroad}}}]")).warnings


def test_a_schedule_that_stays_open_over_the_weekend_gets_a_warning() -> None:
    daily = BERLIN.replace("0 19 * * 1-5", "0 19 * * *")
    (said,) = {str(one) for one in read(with_schedule(f"[{{{daily}}}]")).warnings}
    assert 'pools.yaml:6: metadata.annotations["leeway.sh/schedule"][0]: expected one end' in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("7-19", "expected a JSON list of 1 to 20 windows, such as"),
        ("[]", "expected a JSON list of 1 to 20 windows, such as"),
        ("[7]", "[0]: "),
        (f"[{{{BERLIN.replace('30 7', '30 25')}}}]", "[0].start: hour 25: expected 0 to 23"),
        (f"[{{{BERLIN.replace('* * 1-5', '30 2 *')}}}]", "expected a day that exists"),
        (f"[{{{BERLIN.replace('Berlin', 'Berlim')}}}]", "did you mean Europe/Berlin?"),
        (f"[{{{BERLIN.replace('0 19', '30 7')}}}]", "[0]: expected start and end to differ"),
        (f"[{{{BERLIN.replace('0 19', '30 7,19')}}}]", "[0]: expected a window that closes"),
        (f'[{{{BERLIN}, "replicas": 1}}]', "[0].replicas: "),
        ('[{"timezone": "UTC", "start": "0 7 * * *"}]', "[0].end: "),
    ],
)
def test_an_error_of_a_schedule_is_one_line_with_its_place(text: str, said: str) -> None:
    (found,) = problems(with_schedule(text))
    assert 'pools.yaml:6: metadata.annotations["leeway.sh/schedule"]' in found
    assert said in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("percentage", "base", "share"),
    [
        ("25", None, OnDemandShare(0, 25)),
        ("0", "8", OnDemandShare(8000, 0)),
        ("100", "500m", OnDemandShare(500, 100)),
        (None, None, None),
    ],
)
def test_a_pool_has_an_on_demand_share(
    percentage: str | None, base: str | None, share: OnDemandShare | None
) -> None:
    text = with_share(percentage, base) if percentage else POOL
    assert pool(text).on_demand == share


def test_a_share_in_a_pool_of_spot_gets_a_warning() -> None:
    spot = "{key: karpenter.sh/capacity-type, operator: In, values: [spot]}"
    text = with_share("25") + f"      requirements: [{spot}]\n"
    (said,) = {str(warning) for warning in read(text).warnings}
    assert 'above-base"]: the pool has an on-demand share' in said
    assert not read(with_share("0") + f"      requirements: [{spot}]\n").warnings


@pytest.mark.parametrize(
    ("written", "policy", "after", "expires"),
    [
        ("{ttlSecondsAfterEmpty: 30}", "WhenEmpty", 30, None),
        ("{consolidation: {enabled: true}}", "WhenEmptyOrUnderutilized", 0, None),
        ("{ttlSecondsUntilExpired: 120}", "WhenEmpty", None, 120),
        ("{}", "WhenEmpty", None, None),
    ],
)
def test_the_disruption_settings_of_a_provisioner_are_converted(
    written: str, policy: str, after: int | None, expires: int | None
) -> None:
    meant = read(PROVISIONER[:-1] + f" {written}\n").written[0].manifest
    assert isinstance(meant, NodePool)
    disruption, expire = meant.spec.disruption, meant.spec.template.spec.expire_after
    assert disruption.consolidation_policy == policy
    for value, seconds in ((disruption.consolidate_after, after), (expire, expires)):
        assert value == "Never" if seconds is None else value.total_seconds() == seconds  # type: ignore[union-attr]


def test_the_fields_that_give_nodes_back_are_no_warnings() -> None:
    assert not read((USERS / "provisioner-consolidation.yaml").read_text()).warnings


def test_ignored_fields_are_warnings_with_file_and_line() -> None:
    found = read(PROVISIONER + "  provider: {amiFamily: AL2023}\n")
    (said,) = {str(warning) for warning in found.warnings}
    assert "spec.provider: ignored: write an AWSNodeTemplate" in said


def test_all_fields_of_a_provisioner_are_converted() -> None:
    found = pool(
        PROVISIONER
        + "  labels: {team: a}\n"
        + "  taints: [{key: gpu, value: 'true', effect: NoSchedule}]\n"
        + "  startupTaints: [{key: agent, effect: NoExecute}]\n"
        + "  weight: 7\n"
        + "  requirements: [{key: kubernetes.io/os, operator: Exists}]\n"
        + "  kubeletConfiguration: {maxPods: 17, containerRuntime: containerd}\n"
        + "  providerRef: {name: old}\n",
        TEMPLATE + "  amiFamily: Bottlerocket\n",
    )
    assert found.labels == {
        "team": "a",
        "karpenter.sh/nodepool": "old",
        "karpenter.k8s.aws/ec2nodeclass": "old",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/registered": "true",
    }
    assert found.requirements["team"].values == {"a"}
    assert found.taints == (Taint("gpu", "true", "NoSchedule"),)
    assert found.startup_taints == (Taint("agent", "", "NoExecute"),)
    assert found.weight == 7
    assert found.requirements["kubernetes.io/os"].complement
    assert found.node_class.family is AmiFamily.BOTTLEROCKET
    assert found.node_class.kubelet.max_pods == 17


def test_labels_of_a_provisioner_override_its_default_requirements() -> None:
    found = pool(PROVISIONER + "  labels: {beta.kubernetes.io/arch: arm64}\n")
    assert found.requirements["kubernetes.io/arch"].values == {"arm64"}


@pytest.mark.parametrize(
    ("selector", "terms"),
    [
        ("{karpenter.sh/discovery: x}", [{"tags": {"karpenter.sh/discovery": "x"}}]),
        ("{Name: '', team: a}", [{"tags": {"Name": "*", "team": "a"}}]),
        ("{Name: 'a, b'}", [{"tags": {"Name": "a"}}, {"tags": {"Name": "b"}}]),
        ("{aws-ids: 'subnet-1,subnet-2'}", [{"id": "subnet-1"}, {"id": "subnet-2"}]),
        ("{'aws::ids': subnet-1}", [{"id": "subnet-1"}]),
    ],
)
def test_a_selector_is_converted_to_terms(selector: str, terms: list[object]) -> None:
    found = node_class(TEMPLATE + f"  subnetSelector: {selector}\n").spec.subnet_selector_terms
    assert found is not None
    assert [term.model_dump(exclude_unset=True) for term in found] == terms


def test_selectors_by_name_and_owner_are_converted() -> None:
    spec = node_class(
        TEMPLATE
        + "  amiSelector: {'aws::name': mine, 'aws::owners': 'self,amazon'}\n"
        + "  securityGroupSelector: {'aws::name': nodes}\n"
    ).spec
    assert [(t.name, t.owner) for t in spec.ami_selector_terms] == [
        ("mine", "self"),
        ("mine", "amazon"),
    ]
    assert [t.name for t in spec.security_group_selector_terms or ()] == ["nodes"]


def test_a_pool_with_everything_is_read() -> None:
    found = read((Path(__file__).parent / "full-pool.yaml").read_text())
    said = {warning.field for warning in found.warnings}
    assert said == {
        "spec.context",
    }
    (one,) = pools_of(each.manifest for each in found.written)
    kubelet = one.node_class.kubelet
    assert (kubelet.max_pods, kubelet.pods_per_core) == (20, 2)
    assert kubelet.kube_reserved == Resources.parsed(
        {"cpu": "200m", "memory": "100Mi", "ephemeral-storage": "3Gi"}
    )
    assert kubelet.eviction_hard["memory.available"] == "5%"
    assert one.node_class.storage == 100 * GIB
    assert one.node_class.raid0
    assert one.limits == {"cpu": 1_000_000, "memory": 1000 * GIB, "nodes": 5}
    assert one.weight == 10
    family = one.requirements["karpenter.k8s.aws/instance-family"]
    assert family.min_values == 2
    assert one.requirements["karpenter.k8s.aws/instance-cpu"] == Requirement.of(
        "karpenter.k8s.aws/instance-cpu", "Gt", ["3"]
    )


def test_a_limit_of_zero_is_a_limit() -> None:
    assert pool(POOL + "  limits: {nodes: 0}\n").limits == {"nodes": 0}
    assert pool(POOL).limits is None


def test_pools_are_sorted_by_weight() -> None:
    light = POOL.replace("name: web\nspec", "name: light\nspec", 1)
    heavy = POOL + "  weight: 50\n"
    found = pools_of(one.manifest for one in read(light, heavy).written)
    assert [each.name for each in found] == ["web", "light"]


@pytest.mark.parametrize(
    ("written", "family"),
    [
        ("{amiFamily: Bottlerocket}", AmiFamily.BOTTLEROCKET),
        ("{amiSelectorTerms: [{alias: al2@latest}]}", AmiFamily.AL2),
        ("{amiSelectorTerms: [{alias: windows2022@latest}]}", AmiFamily.WINDOWS_2022),
        (
            "{amiFamily: Custom, amiSelectorTerms: [{alias: al2023@v20240625}]}",
            AmiFamily.CUSTOM,
        ),
        ("{}", AmiFamily.AL2023),
    ],
)
def test_the_ami_family_comes_from_the_class_the_alias_or_the_cluster(
    written: str, family: AmiFamily
) -> None:
    assert pool(POOL, CLASS[:-1] + f" {written}\n").node_class.family is family


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("{amiFamily: AL2}", "spec.amiFamily"),
        ("{amiSelectorTerms: [{alias: al2@latest}]}", "spec.amiSelectorTerms"),
    ],
)
def test_amazon_linux_2_is_accepted_with_a_warning(written: str, place: str) -> None:
    (warning,) = read(CLASS[:-1] + f" {written}\n").warnings
    assert str(warning).startswith(f"pools.yaml:5: {place}: EKS has published no AL2 images")


def test_a_setting_that_bottlerocket_lacks_is_a_warning() -> None:
    text = CLASS + "  amiFamily: Bottlerocket\n  kubelet: {podsPerCore: 8}\n"
    (warning,) = read(text).warnings
    assert "spec.kubelet.podsPerCore: Bottlerocket does not support this setting" in str(warning)


def test_prices_without_the_licence_of_windows_are_a_warning() -> None:
    (warning,) = read(CLASS + "  amiFamily: Windows2022\n").warnings
    assert (warning.field, "leave out the licences" in str(warning)) == ("spec.amiFamily", True)


@pytest.mark.parametrize("family", ["AL2023", "AL2", "Windows2022", "Custom"])
def test_other_fields_of_the_kubelet_are_accepted_and_al2023_alone_gets_them(family: str) -> None:
    text = CLASS + f"  amiFamily: {family}\n  kubelet: {{podPidsLimit: 4096}}\n"
    warnings = [str(one) for one in read(text).warnings if "podPidsLimit" in str(one)]
    said = "spec.kubelet.podPidsLimit: ignored: Leeway does not set this on " + family
    assert warnings == ([] if family == "AL2023" else [f"pools.yaml:7: {said}"])


UNKNOWN = "Leeway does not know this field, and nodes get it as it is written"


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("AL2023", UNKNOWN + "; did you mean registryPullQPS?"),
        ("Bottlerocket", "ignored: Leeway does not set this on Bottlerocket"),
        ("Windows2022", "ignored: Leeway does not set this on Windows2022"),
    ],
)
def test_a_field_that_no_known_kubelet_has_is_a_warning_that_names_it(
    family: str, said: str
) -> None:
    reading = read(CLASS + f"  amiFamily: {family}\n  kubelet: {{registryPullQps: 5}}\n")
    assert not reading.problems
    (warning,) = [str(one) for one in reading.warnings if "registryPullQps" in str(one)]
    assert warning == f"pools.yaml:7: spec.kubelet.registryPullQps: {said}"


def test_the_kubelets_fields_are_those_that_a_kubelet_reads() -> None:
    named = {field.alias for field in KubeletSettings.model_fields.values()}
    assert not named & PASSED.keys()
    others = {"apiVersion", "kind", "registerWithTaints"}
    # kubelet.config.k8s.io/v1beta1 in staging/src/k8s.io/kubelet/config/v1beta1/types.go
    fields = (Path(__file__).parent / "kubelet_fields.txt").read_text().split()
    assert named | PASSED.keys() | others == set(fields)


def test_the_clusters_defaults_replace_a_missing_node_class() -> None:
    cluster = (
        "apiVersion: leeway.sh/v1\nkind: Cluster\nmetadata: {name: prod}\n"
        "spec: {defaults: {amiFamily: Bottlerocket, prefixDelegation: true,"
        " vmMemoryOverheadPercent: 1.7}}\n"
    )
    found = pool(POOL, cluster).node_class
    assert (found.name, found.family) == ("web", AmiFamily.BOTTLEROCKET)
    assert found.prefix_delegation
    assert found.vm_memory_overhead == Fraction(17, 1000)


@pytest.mark.parametrize(
    ("family", "device", "counts"),
    [
        ("AL2023", "/dev/xvda", True),
        ("AL2023", "/dev/xvdb", False),
        ("Bottlerocket", "/dev/xvdb", True),
        ("Bottlerocket", "/dev/xvda", False),
        ("Windows2022", "/dev/sda1", True),
        ("Custom", "/dev/sdz", True),
    ],
)
def test_the_data_volume_depends_on_the_family(family: str, device: str, counts: bool) -> None:
    mapping = f"{{deviceName: {device}, ebs: {{volumeSize: 50Gi}}}}"
    text = CLASS + f"  amiFamily: {family}\n  blockDeviceMappings: [{mapping}]\n"
    assert pool(POOL, text).node_class.storage == (50 * GIB if counts else None)
    root = text.replace("{deviceName", "{rootVolume: true, deviceName")
    assert pool(POOL, root).node_class.storage == 50 * GIB


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (POOL + "  wieght: 3\n", "pools.yaml:9: spec.wieght: unknown field; did you mean weight?"),
        (
            POOL + "      requirements: [{key: kubernetes.io/arch, operator: in, values: [x]}]\n",
            "pools.yaml:9: spec.template.spec.requirements[0].operator: expected 'In', 'NotIn'",
        ),
        (
            POOL + "      requirements: [{key: kubernetes.io/arch, operator: In}]\n",
            "spec.template.spec.requirements[0]: expected at least one value for In",
        ),
        (
            POOL + "      requirements: [{key: karpenter.k8s.aws/instance-famly, operator:"
            " Exists}]\n",
            "did you mean karpenter.k8s.aws/instance-family?",
        ),
        (
            POOL + "      requirements: [{key: karpenter.sh/nodepool, operator: Exists}]\n",
            "expected another label: Leeway sets karpenter.sh/nodepool on every node",
        ),
        (
            POOL + "      requirements: [{key: team, operator: In, values: [a], minValues: 2}]\n",
            "expected at least minValues (2) values",
        ),
        (
            annotated("node.alpha.kubernetes.io/ttl: '0'"),
            '["node.alpha.kubernetes.io/ttl"]: expected an annotation of your own domain',
        ),
        (
            PROVISIONER + "  annotations: {kubernetes.io/a: b}\n",
            'spec.annotations["kubernetes.io/a"]: expected an annotation of your own domain',
        ),
        (annotated("leeway.sh/attempt: '1'"), "Leeway set those of their domains"),
        (annotated("a: " + "x" * 16384), "expected annotations of at most 16 KB together"),
        (annotated("karpenter.sh/do-not-disrupt: true"), "expected text"),
        (POOL + "  limits: {cpu: lots}\n", "spec.limits.cpu: expected a quantity like"),
        (CLASS + "  amiFamily: Ubuntu\n", "spec.amiFamily: expected 'AL2', 'AL2023'"),
        (
            CLASS + "  amiSelectorTerms: [{alias: al2024@latest}]\n",
            "expected FAMILY@VERSION such as al2023@latest",
        ),
        (
            CLASS + "  amiFamily: AL2\n  amiSelectorTerms: [{alias: al2023@latest}]\n",
            "amiFamily: expected AL2023 (the family of the alias) or Custom",
        ),
        (
            CLASS + "  role: a\n  instanceProfile: b\n",
            "expected either role or instanceProfile",
        ),
        (
            CLASS + "  kubelet: {evictionSoft: {memory.available: 5%}}\n",
            "expected both evictionSoft and evictionSoftGracePeriod for memory.available",
        ),
        (CLASS + "  kubelet: {registryPullQPS: '5'}\n", "registryPullQPS: expected a whole number"),
        (CLASS + "  kubelet: {shutdownGracePeriod: 5}\n", "expected a duration such as 90s"),
        (CLASS + "  kubelet: {featureGates: {A: 1}}\n", "expected a map of true and false"),
        (
            CLASS + "  kubelet: {registerWithTaints: [{key: a, effect: NoSchedule}]}\n",
            "registerWithTaints: expected taints in the NodePool",
        ),
        (
            CLASS + "  blockDeviceMappings: [{ebs: {volumeSize: 20}}]\n",
            "spec.blockDeviceMappings[0].ebs.volumeSize: expected",
        ),
        (
            PROVISIONER + f"  ttlSecondsUntilExpired: {10**30}\n",
            "spec.ttlSecondsUntilExpired: expected at most 2147483647",
        ),
        (
            PROVISIONER + "  ttlSecondsAfterEmpty: 1\n  consolidation: {enabled: true}\n",
            "expected either consolidation or ttlSecondsAfterEmpty",
        ),
        (
            POOL.replace(
                "  name: web\nspec", "  name: web\n  annotations: {leeway.sh/kubelet: x}\nspec"
            ),
            'metadata.annotations["leeway.sh/kubelet"]: expected kubelet settings as JSON',
        ),
        (
            with_share("101"),
            '["leeway.sh/on-demand-percentage-above-base"]: expected a whole number from 0 to 100',
        ),
        (with_share("²"), 'got "²"'),
        (
            with_share("50", base="many"),
            '["leeway.sh/on-demand-base"]: expected a number of vCPUs of at least 0',
        ),
        (with_share("50", base="-1"), 'such as "8", got "-1"'),
        (
            with_share(None, base="8"),
            '-base"]: expected leeway.sh/on-demand-percentage-above-base as well',
        ),
        (TEMPLATE + "  subnetSelector: {aws-ids: vpc-1}\n", "expected text that matches ^subnet-"),
    ],
)
def test_an_error_has_its_place_and_what_was_expected(text: str, said: str) -> None:
    (found, *_) = problems(text)
    assert said in found


def test_a_pool_with_replicas_is_static() -> None:
    (pool,) = pools_of(
        [one.manifest for one in read(f"{POOL}  replicas: 3\n  limits: {{nodes: 5}}\n").written]
    )
    assert (pool.replicas, pool.limits) == (3, {"nodes": 5})
    assert pools_of([one.manifest for one in read(POOL).written])[0].replicas is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("replicas: 1\n  weight: 3", "weight: expected none beside replicas"),
        ("replicas: 1\n  limits: {nodes: 5, cpu: 9}", "expected only nodes beside replicas"),
        ("replicas: -1", "spec.replicas"),
        ("replicas: 1000000", "spec.replicas"),
        ("replicas: '2'", "spec.replicas"),
    ],
)
def test_what_does_not_fit_replicas_is_one_clear_problem(fields: str, problem: str) -> None:
    (found,) = problems(f"{POOL}  {fields}\n")
    assert problem in found


@pytest.mark.parametrize(
    ("limit", "warning"), [(4, ""), (3, "expected more than 3"), (2, "expected at least 3")]
)
def test_a_limit_without_room_for_replacements_is_a_warning(limit: int, warning: str) -> None:
    found = read(f"{POOL}  replicas: 3\n  limits: {{nodes: {limit}}}\n").warnings
    assert [warning in str(one) for one in found] == [True] * bool(warning)


def test_a_static_pool_needs_no_limits() -> None:
    manifests = [one.manifest for one in read(f"{POOL}  replicas: 3\n").written]
    assert pools_without_limits(manifests) == ()
    assert pools_without_limits([one.manifest for one in read(POOL).written]) == ("web",)


def test_a_pool_says_how_its_nodes_expire() -> None:
    written = "name: web\n  annotations: {leeway.sh/expiration: %s}\n"
    annotated = POOL.replace("name: web\n", written, 1)
    for known in ("graceful", "forceful"):
        assert problems(annotated % known) == []
    (problem,) = problems(annotated % "forcefull")
    assert 'annotations["leeway.sh/expiration"]: expected graceful or forceful, got' in problem
