"""Drift of AMI, networks and settings: a difference is one, and what is not known is none."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from leeway.disruption.drift import CurrentLaunch, launch_drift_of
from leeway.launch.images import ImageVariant
from leeway.launch.node_settings import VERSION, tag_value

from tests.disruption.clusters import facts

INTEL, ARM = ImageVariant("x86_64"), ImageVariant("arm64")
HASHES = {"role": "11111111", "tags": "22222222"}
NOW = CurrentLaunch(
    hashes=HASHES,
    images={INTEL: "ami-new", ARM: "ami-arm"},
    subnets=frozenset({"subnet-a", "subnet-b"}),
    security_groups=frozenset({"sg-1", "sg-2"}),
)
SAME: dict[str, Any] = {
    "image": "ami-new",
    "subnet": "subnet-b",
    "security_groups": ("sg-1", "sg-2"),
    "launch_settings": tag_value(HASHES),
}


def drift(now: CurrentLaunch = NOW, variant: ImageVariant | None = INTEL, **of: Any) -> list[str]:
    """How the sentences about an instance begin that differs only in some facts."""
    found = launch_drift_of(facts("i-1", **{**SAME, **of}), variant, now)
    return [" ".join(one.split()[:2]) for one in found]


def test_each_part_that_differs_is_named() -> None:
    assert drift() == []
    assert drift(image="ami-old") == ["It runs"]
    assert drift(variant=ARM) == ["It runs"]
    assert drift(subnet="subnet-c") == ["Its subnet"]
    assert drift(security_groups=("sg-1",)) == ["It has"]
    assert drift(security_groups=("sg-1", "sg-2", "sg-3")) == ["It has"]
    (reason,) = launch_drift_of(
        facts("i-1", **{**SAME, "launch_settings": f"{VERSION} role=0 tags=22222222"}), INTEL, NOW
    )
    assert reason.startswith("The setting role of")


def test_an_instance_without_the_record_does_not_drift_by_it() -> None:
    unknown: dict[str, Any] = {
        "image": "",
        "subnet": "",
        "security_groups": (),
        "launch_settings": "",
    }
    assert drift(**unknown) == []
    assert drift(launch_settings="v0 role=0") == []
    assert drift(launch_settings=f"{VERSION} other=0") == []


@given(st.sampled_from(["images", "subnets", "security_groups", "hashes"]), st.booleans())
def test_what_cannot_be_read_is_no_drift(unknown: str, empty: bool) -> None:
    nothing: Any = {} if unknown in {"images", "hashes"} else frozenset() if empty else None
    now = replace(NOW, **{unknown: nothing})
    others: dict[str, Any] = {
        "image": "ami-old",
        "subnet": "subnet-z",
        "security_groups": ("sg-z",),
        "launch_settings": f"{VERSION} role=0 tags=0",
    }
    code = {
        "images": "It runs",
        "subnets": "Its subnet",
        "security_groups": "It has",
        "hashes": "The setting",
    }[unknown]
    found = drift(now, **others)
    assert code not in found
    assert len(set(found)) == 3


TEXT = st.text(max_size=40)


@given(TEXT, TEXT, st.lists(TEXT, max_size=3), TEXT)
def test_an_instance_never_drifts_from_what_is_unknown(
    image: str, subnet: str, groups: list[str], tag: str
) -> None:
    of: dict[str, Any] = {"image": image, "subnet": subnet, "security_groups": tuple(groups)}
    assert drift(CurrentLaunch(), **of, launch_settings=f"{VERSION} {tag}") == []
    assert drift(NOW, variant=None, **{**SAME, "image": image}) == []


@given(TEXT)
def test_a_tag_can_only_name_parts_that_leeway_hashes(tag: str) -> None:
    found = launch_drift_of(
        facts("i-1", **{**SAME, "launch_settings": f"{VERSION} {tag}"}), INTEL, NOW
    )
    assert all(one.startswith("The setting ") for one in found)
    assert len(found) <= len(HASHES)
    named = {one.split("The setting ")[1].split(" of ")[0] for one in found}
    assert named <= HASHES.keys(), "nothing of the tag itself is repeated"
