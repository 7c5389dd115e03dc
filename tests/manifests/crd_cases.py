"""Manifests that the CRDs accept and refuse: each rule of Karpenter's suites of CEL, in our words.

A case changes fields of a valid manifest: `{"spec.weight": 101}`. REMOVED removes one. The sandbox
and a real API server (`make conformance`) decide each of them.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

REMOVED = "(removed)"

POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "pool"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.k8s.aws",
                    "kind": "EC2NodeClass",
                    "name": "default",
                },
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "Exists"}],
            }
        }
    },
}
CLASS: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "class"},
    "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"*": "*"}}],
        "securityGroupSelectorTerms": [{"tags": {"*": "*"}}],
        "role": "nodes",
    },
}

type Change = Mapping[str, Any]


def changed(base: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Return a copy of a manifest with some fields set or removed."""
    made = copy.deepcopy(dict(base))
    for path, value in change.items():
        *above, last = path.split(".")
        at = made
        for part in above:
            at = at.setdefault(part, {})
        if value is REMOVED:
            del at[last]
        else:
            at[last] = value
    return made


DISRUPTION, SPEC, LABELS = "spec.disruption", "spec.template.spec", "spec.template.metadata.labels"


def _budget(**fields: object) -> Change:
    return {f"{DISRUPTION}.budgets": [{"nodes": "10", **fields}]}


def _need(key: str, operator: str = "Exists", **more: object) -> Change:
    return {f"{SPEC}.requirements": [{"key": key, "operator": operator, **more}]}


def _taint(**fields: object) -> Iterable[Change]:
    taint = {"key": "a", "value": "b", "effect": "NoSchedule", **fields}
    made = [{k: v for k, v in taint.items() if v is not None}]
    return ({f"{SPEC}.taints": made}, {f"{SPEC}.startupTaints": made})


POOLS_ACCEPTED: tuple[Change, ...] = (
    {},
    *({f"{SPEC}.expireAfter": text} for text in ("30s", "1h30m5s", "Never")),
    *({f"{DISRUPTION}.consolidateAfter": text} for text in ("30s", "1h30m5s", "Never")),
    *(
        {f"{DISRUPTION}.consolidationPolicy": text}
        for text in ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
    ),
    *({f"{SPEC}.terminationGracePeriod": text} for text in ("30s", "1h30m5s")),
    _budget(),
    _budget(schedule="* * * * *", duration="20m"),
    _budget(schedule="* * * * *", duration="2h20m"),
    _budget(schedule="@annually", duration="20m"),
    _budget(reasons=["Drifted", "Underutilized", "Empty"]),
    *_taint(),
    *_taint(key="example.com/a", value=None),
    {f"{SPEC}.taints": [{"key": "a", "effect": e} for e in ("NoSchedule", "NoExecute")]},
    *(_need(key, "In", values=["x"]) for key in ("Test", "test.com/Test", "1.2.3/a-b_c.d")),
    *(
        _need(key, "In", values=["x"])
        for key in ("karpenter.sh/capacity-type", "karpenter.k8s.aws/instance-category")
    ),
    *(_need(key) for key in ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")),
    _need("example.com/a", "Gt", values=["0"]),
    _need("example.com/a", "Lte", values=["18"]),
    _need("example.com/a", "In", values=[str(n) for n in range(60)]),
    _need("example.com/a", "In", values=["a", "b"], minValues=2),
    _need("example.com/a", minValues=50),
    {f"{SPEC}.requirements": []},
    {LABELS: {"example.com/team": "a", "team": ""}},
    {LABELS: {"kops.k8s.io/instancegroup": "a", "node.kubernetes.io/custom": "b"}},
    {"spec.replicas": 0},
    {"spec.replicas": 1000, "spec.limits": {"nodes": "1100"}},
    {"spec.limits": {"cpu": 1000, "memory": "1000Gi", "leeway.sh/usd-per-hour": "12.5"}},
    {"spec.weight": 100},
)

POOLS_REFUSED: tuple[Change, ...] = (
    *({f"{SPEC}.expireAfter": text} for text in ("-1s", "1hr", "FooNever")),
    *({f"{DISRUPTION}.consolidateAfter": text} for text in ("-1s", "1hr", "FooNever")),
    *(
        {f"{DISRUPTION}.consolidationPolicy": text}
        for text in ("1", "balanced", "whenempty", "", "WhenUnderutilized", "foo")
    ),
    *({f"{SPEC}.terminationGracePeriod": text} for text in ("-1s", "1hr", "Never", "FooNever")),
    _budget(schedule="*", duration="20m"),
    _budget(schedule="* * * *", duration="20m"),
    _budget(schedule="* * * * *", duration="-20m"),
    _budget(schedule="* * * * *", duration="30s"),
    *(_budget(nodes=text) for text in ("-10", "-10%", "1000%")),
    _budget(schedule="* * * * *"),
    _budget(duration="20m"),
    {f"{DISRUPTION}.budgets": [{"nodes": "10"}, {"nodes": "10", "duration": "20m"}]},
    *(_budget(reasons=[text]) for text in ("invalid", "expired", "")),
    *(
        one
        for key in ("test.com.com}", "Test.com/test", "test/test/test")
        for one in _taint(key=key)
    ),
    *_taint(key="test/"),
    *_taint(key="/test"),
    *_taint(key=None),
    *_taint(value="???"),
    *_taint(effect="NoSchedules"),
    *(
        _need(key)
        for key in ("test.com.com}", "Test.com/test", "test/test/test", "test/", "/test", "")
    ),
    _need("karpenter.sh/nodepool", "In", values=["a"]),
    _need("kubernetes.io/hostname", "In", values=["a"]),
    _need("karpenter.sh/unknown", "In", values=["a"]),
    _need("karpenter.k8s.aws/unknown", "In", values=["a"]),
    _need("team", "unknown"),
    _need("team", "In", values=[]),
    _need("team", "In"),
    _need("team", "NotIn", values=[]),
    _need("team", "Exists", values=["a"]),
    *(
        _need("team", operator, values=values)
        for operator in ("Gt", "Lt", "Gte", "Lte")
        for values in ([], ["1", "2"], ["a"], ["-1"])
    ),
    *(_need("team", minValues=number) for number in (-1, 0, 51)),
    _need("team", "In", values=["a"], minValues=2),
    {LABELS: {"karpenter.sh/nodepool": "a"}},
    {LABELS: {"kubernetes.io/hostname": "a"}},
    {LABELS: {"karpenter.sh/unknown": "a"}},
    {LABELS: {"spaces are not allowed": "a"}},
    {LABELS: {"team": "/ is not allowed"}},
    {"spec.template.metadata.annotations": {"node.kubernetes.io/exclude": "a"}},
    {f"{SPEC}.nodeClassRef": REMOVED},
    {f"{SPEC}.requirements": REMOVED},
    {"spec.template": REMOVED},
    *({f"{SPEC}.nodeClassRef.{field}": REMOVED} for field in ("group", "kind", "name")),
    *({f"{SPEC}.nodeClassRef.{field}": ""} for field in ("group", "kind", "name")),
    {"spec.replicas": -1},
    {"spec.replicas": 1, "spec.weight": 5},
    *(
        {"spec.replicas": 1, "spec.limits": {name: "1"}}
        for name in ("cpu", "memory", "pods", "ephemeral-storage")
    ),
    {"spec.limits": {"leeway.sh/usd": "1"}},
    {"spec.limits": {"cpu": "much"}},
    *({"spec.weight": number} for number in (0, 101)),
    {"spec": REMOVED},
)

POOL_CHANGES_REFUSED: tuple[tuple[Change, Change], ...] = (
    ({}, {"spec.replicas": 1}),
    ({"spec.replicas": 1}, {}),
)
"""Updates from a valid manifest to another one."""


def _amis(*terms: Mapping[str, Any], **more: object) -> Change:
    return {
        "spec.amiSelectorTerms": list(terms),
        **{f"spec.{name}": value for name, value in more.items()},
    }


def _terms(field: str, *terms: Mapping[str, Any]) -> Change:
    return {f"spec.{field}": list(terms)}


SUBNETS, GROUPS = "subnetSelectorTerms", "securityGroupSelectorTerms"
RESERVATIONS = "capacityReservationSelectorTerms"
TAGS = {"tags": {"team": "a"}}
_BAD_TAGS = ({"tags": {"": "a"}}, {"tags": {"team": ""}})
_ALIASES = {
    "AL2": "al2@latest",
    "AL2023": "al2023@v20240625",
    "Bottlerocket": "bottlerocket@1.10.0",
    "Windows2019": "windows2019@latest",
    "Windows2022": "windows2022@latest",
    "Windows2025": "windows2025@latest",
}


def _disk(size: str = "", **more: object) -> Change:
    ebs = {"volumeSize": size} if size else {}
    return {"spec.blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {**ebs, **more}}]}


def _roots(*root: bool) -> Change:
    ebs = {"volumeSize": "50Gi"}
    return {"spec.blockDeviceMappings": [{"ebs": ebs, "rootVolume": one} for one in root]}


CLASSES_ACCEPTED: tuple[Change, ...] = (
    {},
    {"spec.role": REMOVED, "spec.instanceProfile": "nodes"},
    {"spec.userData": ""},
    *(_amis(TAGS, amiFamily=family) for family in (*_ALIASES, "Custom")),
    *(_amis({"alias": alias}) for alias in _ALIASES.values()),
    *(_amis({"alias": alias}, amiFamily=family) for family, alias in _ALIASES.items()),
    *(_amis({"alias": alias}, amiFamily="Custom") for alias in _ALIASES.values()),
    {"spec.tags": {}},
    {"spec.tags": {"karpenter.sh/custom-key": "a", "kubernetes.io/role/key": "b"}},
    _terms(SUBNETS, TAGS),
    _terms(SUBNETS, {"id": "subnet-12345749"}),
    _terms(GROUPS, TAGS),
    _terms(GROUPS, {"id": "sg-12345749"}),
    _terms(GROUPS, {"name": "nodes"}),
    _terms(RESERVATIONS, TAGS),
    _terms(RESERVATIONS, {"id": "cr-12345749"}),
    _terms(RESERVATIONS, {**TAGS, "ownerID": "012345678901"}),
    _terms(RESERVATIONS, {"instanceMatchCriteria": "open"}),
    _terms(RESERVATIONS, {**TAGS, "ownerID": "012345678901", "instanceMatchCriteria": "targeted"}),
    _amis({"id": "ami-12345749"}, amiFamily="AL2023"),
    _amis({"name": "image", "owner": "self"}, amiFamily="AL2023"),
    _amis({**TAGS, "owner": "self"}, amiFamily="AL2023"),
    _amis({"ssmParameter": "/images/a"}, amiFamily="AL2023"),
    {"spec.kubelet": {"maxPods": 10, "newField": {"deep": [{"a": 1}]}}},
    {"spec.metadataOptions": {"httpEndpoint": "disabled", "httpPutResponseHopLimit": 2}},
    _roots(True, False),
    *(_disk(text) for text in ("50Gi", "50G", "59000Gi", "64000G", "10Ti", "58Ti", "64T")),
    _disk(snapshotID="snap-1", volumeInitializationRate=100),
    {"spec.networkInterfaces": []},
    {
        "spec.networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
        ]
    },
    {"spec.connectionTracking": {"tcpEstablishedTimeout": 432_000, "udpTimeout": 30}},
    {"spec.cpuOptions": {"nestedVirtualization": "disabled"}},
    {"spec.cpuOptions": {}},
)

CLASSES_REFUSED: tuple[Change, ...] = (
    {"spec.instanceProfile": "nodes"},
    {"spec.role": REMOVED},
    {"spec.role": ""},
    {"spec.role": REMOVED, "spec.instanceProfile": ""},
    {"spec.amiFamily": "Ubuntu"},
    *(
        _amis({"alias": alias}, amiFamily=other)
        for alias, other in zip(_ALIASES.values(), [*_ALIASES][1:] + [*_ALIASES][:1], strict=True)
    ),
    _amis({"id": "ami-12345749"}),
    *(
        {"spec.tags": {key: "a"}}
        for key in (
            "",
            "karpenter.sh/nodepool",
            "kubernetes.io/cluster/test",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.aws/ec2nodeclass",
            "eks:eks-cluster-name",
        )
    ),
    *({f"spec.{field}": REMOVED} for field in (SUBNETS, GROUPS, "amiSelectorTerms")),
    *({f"spec.{field}": []} for field in (SUBNETS, GROUPS, "amiSelectorTerms")),
    *(
        _terms(field, *before, bad)
        for field in (SUBNETS, GROUPS, RESERVATIONS)
        for before in ((), (TAGS,))
        for bad in ({}, *_BAD_TAGS)
    ),
    _terms(SUBNETS, {"id": "subnet-1", **TAGS}),
    _terms(SUBNETS, TAGS, {"id": "subnet-1", **TAGS}),
    _terms(GROUPS, {"id": "sg-1", **TAGS}),
    _terms(GROUPS, {"id": "sg-1", "name": "a"}),
    _terms(GROUPS, {"name": "a", **TAGS}),
    _terms(RESERVATIONS, {"id": "r-1"}),
    _terms(RESERVATIONS, {"id": "cr-1", **TAGS}),
    _terms(RESERVATIONS, {"id": "cr-1", "ownerID": "012345678901"}),
    _terms(RESERVATIONS, {"id": "cr-1", "instanceMatchCriteria": "open"}),
    _terms(RESERVATIONS, {"ownerID": "01234567890", **TAGS}),
    _terms(RESERVATIONS, {"ownerID": "012345678901"}),
    _terms(RESERVATIONS, {"instanceMatchCriteria": "closed"}),
    *(_amis(bad, amiFamily="AL2023") for bad in ({}, *_BAD_TAGS)),
    *(
        _amis({one: "ami-1" if one == "id" else "al2023@latest", **other}, amiFamily="AL2023")
        for one in ("id", "alias")
        for other in (TAGS, {"name": "a"}, {"owner": "123456789"})
    ),
    _amis({"alias": "al2023@latest"}, {"id": "ami-1"}, amiFamily="AL2023"),
    *(
        _amis({"alias": alias})
        for alias in (
            "@latest",
            "al2023",
            "al2023@",
            "al2023-latest",
            "ubuntu@latest",
            "windows2019@v1.0.0",
            "windows2022@v1.0.0",
            "windows2025@v1.0.0",
        )
    ),
    *(
        {f"spec.metadataOptions.{name}": value}
        for name, value in (
            ("httpEndpoint", "test"),
            ("httpProtocolIPv6", "test"),
            ("httpPutResponseHopLimit", -5),
            ("httpTokens", "test"),
        )
    ),
    _roots(True, True),
    *(_disk(text) for text in ("999Mi", "0Gi", "100000Gi", "65T", "64Gi5", "x")),
    _disk(),
    _disk("50Gi", volumeInitializationRate=100),
    _disk(snapshotID="snap-1", volumeInitializationRate=99),
    _disk(snapshotID="snap-1", volumeInitializationRate=301),
    *(
        {"spec.networkInterfaces": [{"networkCardIndex": card, "deviceIndex": 0, **more}]}
        for card, more in (
            (0, {"interfaceType": "efa-only"}),
            (-1, {"interfaceType": "interface"}),
            (1, {"interfaceType": "interface"}),
            (0, {"interfaceType": "efa"}),
        )
    ),
    {
        "spec.networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
        ]
        * 2
    },
    {"spec.placementGroupSelector": {"name": "a"}},
    {"spec.connectionTracking": {}},
    *(
        {"spec.connectionTracking": {name: value}}
        for name, value in (
            ("tcpEstablishedTimeout", 59),
            ("tcpEstablishedTimeout", 432_001),
            ("udpStreamTimeout", 59),
            ("udpStreamTimeout", 181),
            ("udpTimeout", 29),
            ("udpTimeout", 61),
        )
    ),
    {"spec.cpuOptions": {"nestedVirtualization": "maybe"}},
)
