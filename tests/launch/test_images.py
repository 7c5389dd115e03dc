"""The AMI of a node: by the parameters that AWS publishes, or by the terms of the node class."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from leeway.launch.images import (
    Image,
    ImageVariant,
    image_by_parameter,
    image_by_terms,
    parameters_of,
    unusable_images,
    variant_of,
    variants_of,
)
from leeway.launch.node_settings import NodeSettings, NotLaunchable
from leeway.selection.offers.catalog import Catalog
from leeway_sandbox.aws.images import node_images

from tests.launch.pools import node_class, settings

AMD, ARM = ImageVariant("x86_64"), ImageVariant("arm64")
NVIDIA, NEURON = ImageVariant("x86_64", "nvidia"), ImageVariant("x86_64", "neuron")
ALL = (AMD, ARM, NVIDIA, NEURON)
PUBLISHED = {f"{path}/image_id" for image in node_images() for path in image.parameters}


@pytest.mark.parametrize(
    ("family", "kubernetes", "variants"),
    [
        ("AL2023", "1.34", ALL),
        ("AL2", "1.32", ALL),
        ("Bottlerocket", "1.34", ALL),
        ("Windows2019", "1.34", (AMD,)),
        ("Windows2022", "1.34", (AMD,)),
        ("Windows2025", "1.34", (AMD,)),
    ],
)
def test_the_parameters_of_a_family_exist(
    family: str, kubernetes: str, variants: tuple[ImageVariant, ...]
) -> None:
    of_family = settings(node_class(amiFamily=family))
    wanted = {*variants, *variants_of(of_family)}
    found = parameters_of(of_family, kubernetes, wanted)
    assert found.keys() == wanted
    assert {*found.values()} <= PUBLISHED


@pytest.mark.parametrize(
    "alias", ["al2023@v20260901", "al2@v20260901", "bottlerocket@v1.48.0", "al2023@latest"]
)
def test_an_alias_names_a_release(alias: str) -> None:
    terms = [{"alias": alias}]
    found = parameters_of(settings(node_class(amiSelectorTerms=terms)), "1.32", (AMD, ARM))
    assert len({*found.values()}) == 2
    release = alias.partition("@")[2].removeprefix("v").replace("latest", "recommended")
    for parameter in found.values():
        assert release in parameter


def test_terms_other_than_an_alias_need_no_parameter() -> None:
    terms = [{"id": "ami-0123456789abcdef0"}]
    custom = node_class(amiSelectorTerms=terms, amiFamily="AL2023")
    assert parameters_of(settings(custom), "1.34", ALL) == {}


def test_the_family_custom_without_terms_is_an_error() -> None:
    with pytest.raises(NotLaunchable, match=r"spec\.amiSelectorTerms in EC2NodeClass default"):
        parameters_of(settings(node_class(amiFamily="Custom")), "1.34", ALL)


def test_a_parameter_that_does_not_exist_is_an_error_with_its_name() -> None:
    with pytest.raises(NotLaunchable, match=r"no AMI for x86_64 .* no SSM parameter /aws/x"):
        image_by_parameter(settings(node_class()), AMD, "/aws/x", {})


def image(name: str, age: int, architecture: str = "x86_64", deprecated: bool = False) -> Image:
    created = datetime(2026, 11, 1, tzinfo=UTC) - timedelta(days=age)
    return Image(f"ami-{name}", name, architecture, created, "/dev/xvda", deprecated)


def test_the_newest_image_of_the_architecture_is_used() -> None:
    images = [image("old", 9), image("new", 1), image("arm", 0, "arm64"), image("x", 0, "x", True)]
    found = settings(node_class(amiSelectorTerms=[{"name": "own-*"}], amiFamily="AL2023"))
    assert image_by_terms(found, AMD, images).name == "new"
    assert image_by_terms(found, ARM, images).name == "arm"
    deprecated = [image("newest", 0, deprecated=True), *images]
    assert image_by_terms(found, AMD, deprecated).name == "new"
    assert image_by_terms(found, AMD, deprecated[:1]).name == "newest"
    twins = [image("b", 1), image("c", 1), image("a", 1)]
    assert image_by_terms(found, AMD, twins).name == "c", "as Karpenter chooses"
    with pytest.raises(NotLaunchable, match=r"arm64 matches EC2NodeClass default, spec\.amiSelect"):
        image_by_terms(found, ARM, images[:1])


OWN, GONE = "ami-0123456789abcdef0", "ami-0fedcba9876543210"


def by_id(*names: str) -> NodeSettings:
    return settings(node_class(amiSelectorTerms=[{"id": one} for one in names], amiFamily="AL2023"))


def test_an_image_that_ec2_does_not_show_is_named_with_the_possible_causes() -> None:
    with pytest.raises(NotLaunchable) as refused:
        image_by_terms(by_id(GONE), ARM, [])
    said = str(refused.value)
    assert f"EC2 knows no image {GONE}" in said
    assert "EC2NodeClass default, spec.amiSelectorTerms[0].id" in said
    for cause in ("another region", "deregistered", "not shared with this account"):
        assert cause in said
    assert "No AMI for" not in said


def test_an_image_that_is_not_available_is_not_used_and_its_state_is_named() -> None:
    own = replace(image("own", 1), id=OWN, state="disabled")
    with pytest.raises(NotLaunchable, match=f"image {OWN} .* is disabled, not available"):
        image_by_terms(by_id(OWN), AMD, [own])
    usable = replace(image("other", 9), id=GONE)
    assert image_by_terms(by_id(OWN, GONE), AMD, [own, usable]) == usable


def test_an_image_of_another_architecture_is_named_with_its_own() -> None:
    own = replace(image("own", 1), id=OWN)
    with pytest.raises(NotLaunchable, match=f"no AMI for arm64 .*: {OWN} is for x86_64"):
        image_by_terms(by_id(OWN), ARM, [own])


def test_each_image_of_several_that_ec2_does_not_show_is_told() -> None:
    own = replace(image("own", 1), id=OWN)
    (told,) = unusable_images(by_id(OWN, GONE), [own])
    assert "spec.amiSelectorTerms[1].id" in told


def test_the_variant_is_that_of_the_machine(catalog: Catalog) -> None:
    expected = {"m5.large": AMD, "m6g.large": ARM, "g4dn.xlarge": NVIDIA, "inf1.xlarge": NEURON}
    for name, variant in expected.items():
        machine = catalog.machine(name)
        assert machine is not None
        assert variant_of(machine) == variant
