"""The catalog: filtered as sets, compressed and opened without loss; mismatches are explained."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.selection.labels import (
    ARCH,
    CAPACITY_TYPE,
    FAMILY,
    INSTANCE,
    INSTANCE_TYPE,
    OS,
    TENANCY,
    ZONE,
)
from leeway.selection.offers.allocatable import AmiFamily, NodeClass
from leeway.selection.offers.catalog import (
    ANY,
    Catalog,
    InstanceType,
    Offering,
    TypeTable,
    Unavailable,
    bits,
    mask,
    mismatch,
    spot_quota,
    unmatched,
)
from leeway.selection.offers.machines import machine
from leeway.selection.offers.survey import Part, Survey, UnknownForm, compressed, opened, unpacked
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources
from leeway_sandbox.aws.regions import Region

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def asking(*asked: tuple[str, str, list[str]]) -> Requirements:
    """Requirements by label (its short name where it describes an instance), operator, values."""
    return Requirements(
        Requirement.of(k if "/" in k else f"{INSTANCE}{k}", o, v) for k, o, v in asked
    )


@pytest.fixture(scope="module")
def survey(region: Region) -> Survey:
    """The region, with a part of its prices missing."""
    return Survey(
        region.name,
        tuple(sorted(map(machine, region.types), key=lambda m: m.name)),
        region.offered,
        {name: price for name, price in region.on_demand.items() if not name.startswith("t")},
        {zone: dict(prices) for zone, prices in region.spot.items() if zone != "us-east-1f"},
        dict.fromkeys(Part, AT),
    )


def test_a_survey_is_unchanged_by_compressing_and_opening_it(survey: Survey) -> None:
    packed = compressed(survey)
    assert unpacked(packed) == survey
    assert len(packed) < 400_000  # what one item of the table holds


def test_an_empty_survey_is_an_empty_catalog() -> None:
    empty = Survey("us-east-1")
    assert unpacked(compressed(empty)) == empty
    assert opened(compressed(empty)).for_node_class(NodeClass()).types() == []


def test_another_format_version_is_rejected(
    survey: Survey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.selection.offers.survey.VERSION", 0)
    packed = compressed(survey)
    monkeypatch.undo()
    with pytest.raises(UnknownForm):
        opened(packed)


def test_an_unknown_price_is_an_offering_without_one(survey: Survey) -> None:
    table = opened(compressed(survey)).for_node_class(NodeClass())
    offerings = {
        (o.zone, o.capacity_type): o.price
        for o in table.type(table.catalog.index["t3.large"]).offerings
    }
    assert offerings["us-east-1a", "on-demand"] is None
    assert offerings["us-east-1f", "spot"] is None
    assert (offerings["us-east-1a", "spot"] or 0) > 0


@pytest.fixture(scope="module")
def table(catalog: Catalog) -> TypeTable:
    """The whole region as nodes of the default class."""
    return catalog.for_node_class(NodeClass())


keys = st.sampled_from(["category", "cpu", "gpu-name", "local-nvme", "hypervisor", ARCH, OS])
asked: st.SearchStrategy[tuple[str, str, list[str]]] = st.one_of(
    st.tuples(keys, st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
    st.tuples(
        keys,
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["c", "m", "g", "amd64", "4", "8", "t4", "linux"]), min_size=1),
    ),
    st.tuples(
        st.sampled_from(["cpu", "memory", "local-nvme", "gpu-count"]),
        st.sampled_from(["Gt", "Lt"]),
        st.integers(0, 2000).map(lambda n: [str(n)]),
    ),
    st.tuples(
        st.sampled_from([ZONE, CAPACITY_TYPE]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["us-east-1a", "us-east-1e", "spot", "on-demand"]), min_size=1),
    ),
)


@settings(max_examples=60)
@given(st.lists(asked, max_size=4))
def test_the_types_that_match_are_those_that_meet_every_requirement(
    table: TypeTable, asked: list[tuple[str, str, list[str]]]
) -> None:
    requirements = asking(*asked)
    of_types = Requirements(r for k, r in requirements.items() if k not in {ZONE, CAPACITY_TYPE})
    zone, capacity_type = requirements.of_key(ZONE), requirements.of_key(CAPACITY_TYPE)
    expected = {
        each.name
        for each in table.types()
        if of_types.admits(each.labels)
        and any(zone.has(o.zone) and capacity_type.has(o.capacity_type) for o in each.offerings)
    }
    found = {each.name for each in table.types(table.matching(requirements))}
    bootable = {each.name for each in table.types(table.catalog.source.bootable())}
    assert found == {name for name in expected & bootable if not name.startswith("a1.")}


@given(st.lists(st.booleans(), max_size=200))
def test_a_set_has_the_members_it_was_made_of(members: list[bool]) -> None:
    assert list(bits(mask(members))) == [i for i, member in enumerate(members) if member]


def test_an_unavailable_offering_is_excluded(catalog: Catalog) -> None:
    spot_a = asking((ZONE, "In", ["us-east-1a"]), (CAPACITY_TYPE, "In", ["spot"]))
    just_m5 = asking((INSTANCE_TYPE, "In", ["m5.large"])).intersection(spot_a)
    gone = [Unavailable("m5.large", "us-east-1a", "spot")]
    assert catalog.for_node_class(NodeClass()).matching(just_m5)
    table = catalog.for_node_class(NodeClass(), gone)
    assert not table.matching(just_m5)
    assert table.matching(asking((INSTANCE_TYPE, "In", ["m5.large"])))
    available = {
        (o.zone, o.capacity_type): o.available
        for o in table.type(catalog.index["m5.large"]).offerings
    }
    assert not available["us-east-1a", "spot"]
    assert available["us-east-1b", "spot"]
    same = catalog.without(gone).for_node_class(NodeClass())
    assert same.markets == table.markets
    everywhere = catalog.for_node_class(NodeClass(), [Unavailable(ANY, ANY, "spot")])
    assert not everywhere.matching(asking((CAPACITY_TYPE, "In", ["spot"])))
    assert everywhere.matching(asking((CAPACITY_TYPE, "In", ["on-demand"])))


@pytest.mark.parametrize(
    ("instance_type", "quota"),
    [
        ("m5.large", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
        ("is4gen.large", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
        ("inf2.xlarge", "All Inf Spot Instance Requests"),
        ("dl1.24xlarge", "All DL Spot Instance Requests"),
        ("gr6.4xlarge", "All G and VT Spot Instance Requests"),
        ("p4de.24xlarge", "All P4, P3 and P2 Spot Instance Requests"),
        ("p5en.48xlarge", "All P5 Spot Instance Requests"),
        ("p6-b200.48xlarge", ""),
        ("trn1n.32xlarge", "All Trn Spot Instance Requests"),
        ("x2gd.large", "All X Spot Instance Requests"),
        ("u-6tb1.112xlarge", ""),
        ("hpc7a.96xlarge", ""),
    ],
)
def test_a_spot_quota_counts_families(instance_type: str, quota: str) -> None:
    assert spot_quota(instance_type) == quota


def test_windows_nodes_have_their_own_system_labels(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass(family=AmiFamily.WINDOWS_2022))
    labels = table.type(catalog.index["m5.large"]).labels
    assert labels[OS] == "windows"
    assert labels["node.kubernetes.io/windows-build"] == "10.0.20348"
    assert not table.matching(asking((OS, "In", ["linux"])))


def test_a_catalog_can_be_made_of_types_by_hand() -> None:
    big = InstanceType(
        "big",
        {ARCH: "amd64"},
        Resources.parsed({"cpu": 8}),
        Resources.parsed({"cpu": 7}),
        (Offering("a", "spot", 0.1), Offering("b", "on-demand", None)),
    )
    catalog = Catalog.of("nowhere", [big, replace(big, name="bigger")])
    table = catalog.for_node_class(NodeClass())
    assert catalog.zones == ("a", "b")
    [found] = table.types(table.matching(asking((INSTANCE_TYPE, "In", ["big"]))))
    assert found.allocatable == big.allocatable
    assert found.offerings == big.offerings
    assert not table.matching(asking((ZONE, "In", ["b"]), (CAPACITY_TYPE, "In", ["spot"])))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            (ARCH, "In", ["nvidia"]),
            "arch In [nvidia]: no instance type has it; did you mean amd64?",
        ),
        (
            (INSTANCE_TYPE, "In", ["m5.larg"]),
            "instance-type In [m5.larg]: us-east-1 does not offer it; did you mean m5.large?",
        ),
        (
            ("gpu-name", "In", ["t5"]),
            "instance-gpu-name In [t5]: no instance type has it; did you mean t4?",
        ),
        (
            ("cpu", "Gt", ["2000"]),
            "instance-cpu Gt 2000: no instance type has it; there is 1 to 896",
        ),
    ],
)
def test_a_requirement_that_excludes_all_types_is_named_with_a_suggestion(
    catalog: Catalog, wanted: tuple[str, str, list[str]], said: str
) -> None:
    assert mismatch(catalog.for_node_class(NodeClass()), asking(wanted)) == said


def test_if_no_requirement_alone_excludes_all_types_each_is_named_with_its_count(
    catalog: Catalog,
) -> None:
    table = catalog.for_node_class(NodeClass())
    requirements = asking(("gpu-name", "In", ["t4"]), (ARCH, "In", ["arm64"]))
    assert not table.matching(requirements)
    said = mismatch(table, requirements)
    t4 = sum(1 for t in table.types() if t.labels.get(f"{INSTANCE}gpu-name") == "t4")
    assert f"instance-gpu-name In [t4] excludes {len(table) - t4}, arch In [arm64] excludes" in said


def test_values_that_no_type_has_are_named(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass())
    arch = Requirement.of(ARCH, "In", ["nvidia", "amd64"])
    assert unmatched(table, arch) == "no instance type has nvidia; did you mean amd64?"
    assert not unmatched(table, Requirement.of(ARCH, "NotIn", ["nvidia"]))


def test_a_type_that_is_no_longer_described_is_not_offered(
    survey: Survey, described: Mapping[str, Mapping[str, Any]]
) -> None:
    fewer = replace(survey, machines=(machine(described["m5.large"]),))
    assert opened(compressed(fewer)).names == ["m5.large"]


def test_windows_does_not_boot_on_arm(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass(family=AmiFamily.WINDOWS_2022))
    found = table.types(table.matching(Requirements()))
    assert {kind.labels[ARCH] for kind in found} == {"amd64"}
    arm = Requirements.from_labels({ARCH: "arm64"})
    assert table.matching(arm) == 0


@pytest.mark.parametrize(
    ("family", "boots"),
    [(AmiFamily.AL2023, False), (AmiFamily.BOTTLEROCKET, True), (AmiFamily.CUSTOM, True)],
)
def test_al2023_does_not_boot_on_the_first_arm_types(family: AmiFamily, boots: bool) -> None:
    labels = {ARCH: "arm64", FAMILY: "a1"}
    first = InstanceType(
        "a1.large", labels, Resources(), Resources(), (Offering("a", "on-demand", 0.1),)
    )
    later = replace(first, name="t4g.large", labels={ARCH: "arm64", FAMILY: "t4g"})
    table = Catalog.of("nowhere", [first, later]).for_node_class(NodeClass(family=family))
    names = {kind.name for kind in table.types(table.matching(Requirements()))}
    assert names == ({"a1.large", "t4g.large"} if boots else {"t4g.large"})


def test_every_type_has_shared_tenancy_for_pods_that_select_it(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass())
    shared, dedicated = (
        Requirements([Requirement.of(TENANCY, "In", [value])]) for value in ("default", "dedicated")
    )
    assert table.matching(shared) == table.matching(Requirements())
    assert not table.matching(dedicated)
    assert table.type(0).labels[TENANCY] == "default"
