"""The allocatable resources of every type and every AMI family."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from leeway.selection.offers.allocatable import (
    AmiFamily,
    Kubelet,
    NodeClass,
    allocatable,
    capacity,
    max_pods,
)
from leeway.selection.offers.machines import EFA, machine
from leeway.selection.resources import Resources

Described = Mapping[str, Mapping[str, Any]]
MIB = 2**20


def node(
    described: Described, name: str, node_class: NodeClass | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity and allocatable of a type, printed."""
    kind, of = machine(described[name]), node_class or NodeClass()
    whole = capacity(kind, of)
    return whole.printed(), allocatable(kind, of, whole).printed()


def test_an_m5_large_on_al2023(described: Described) -> None:
    whole, left = node(described, "m5.large")
    assert whole == {
        "cpu": "2",
        "memory": "7577Mi",  # 8192 - ceil(8192 x 0.075)
        "ephemeral-storage": "20Gi",
        "pods": "29",  # 3 x 9 + 2
        "vpc.amazonaws.com/pod-eni": "9",
    }
    assert left == {
        "cpu": "1930m",
        "memory": "6903Mi",  # 7577 - (11 x 29 + 255) - 100
        "ephemeral-storage": "17Gi",  # 20 - 1 - 10 %
        "pods": "29",
        "vpc.amazonaws.com/pod-eni": "9",
    }


def test_an_arm_machine_keeps_64_mi_more(described: Described) -> None:
    whole, _ = node(described, "m7g.large")
    assert whole["memory"] == f"{8192 - 64 - math.ceil((8192 - 64) * 0.075)}Mi"


def test_the_overhead_of_virtual_machines_can_be_set(described: Described) -> None:
    whole, _ = node(described, "m5.large", NodeClass(vm_memory_overhead=Fraction(17, 1000)))
    assert whole["memory"] == f"{8192 - 140}Mi"


def reserved_by_the_bootstrap(vcpus: int) -> int:
    """The reference: how the EKS AMIs reserve cpu, in millicores, band by band."""
    start, reserved = 0, 0
    for end, per_ten_thousand in ((1000, 600), (2000, 100), (4000, 50), (10**9, 25)):
        if vcpus * 1000 >= end:
            reserved += (end - start) * per_ten_thousand // 10000
        elif vcpus * 1000 > start:
            reserved += (vcpus * 1000 - start) * per_ten_thousand // 10000
        start = end
    return reserved


@pytest.mark.parametrize("family", list(AmiFamily))
def test_every_type_has_allocatable_resources_within_its_capacity(
    described: Described, family: AmiFamily
) -> None:
    of = NodeClass(family=family)
    for document in described.values():
        kind = machine(document)
        whole = capacity(kind, of)
        left = allocatable(kind, of, whole)
        assert left.fits(whole), kind.name
        assert left.of("cpu") == kind.vcpus * 1000 - reserved_by_the_bootstrap(kind.vcpus)
        assert left.of("memory") >= 0
        assert left.of("pods") == whole.of("pods") > 0
        for device, count in kind.devices.items():
            # Windows has no driver for Elastic Fabric Adapters.
            assert left.of(device) == (0 if device == EFA and family.windows else count)


def test_pods_follow_from_the_addresses_of_the_default_network_card(described: Described) -> None:
    # Of the max-pods list that the EKS AMIs bring.
    known = {"t3.micro": 4, "m5.large": 29, "m5.4xlarge": 234, "p4d.24xlarge": 737}
    here = {name: described[name] for name in known if name in described}
    one_card = {n: d for n, d in here.items() if len(d["NetworkInfo"]["NetworkCards"]) == 1}
    assert one_card
    for name, document in one_card.items():
        assert max_pods(machine(document), NodeClass()) == known[name]
    two_cards = next(d for d in described.values() if len(d["NetworkInfo"]["NetworkCards"]) > 1)
    first = two_cards["NetworkInfo"]["NetworkCards"][0]["MaximumNetworkInterfaces"]
    per_card = two_cards["NetworkInfo"]["Ipv4AddressesPerInterface"]
    assert max_pods(machine(two_cards), NodeClass()) == first * (per_card - 1) + 2


@pytest.mark.parametrize(
    ("kubelet", "prefixes", "pods"),
    [
        (Kubelet(), False, 58),
        (Kubelet(), True, 110),
        (Kubelet(max_pods=17), True, 17),
        (Kubelet(pods_per_core=8), False, 32),
        (Kubelet(pods_per_core=8), True, 32),
        (Kubelet(max_pods=17, pods_per_core=4), False, 16),
        (Kubelet(pods_per_core=0), False, 58),
    ],
)
def test_the_settings_that_determine_the_pods_of_an_m5_xlarge(
    described: Described, kubelet: Kubelet, prefixes: bool, pods: int
) -> None:
    of = NodeClass(kubelet=kubelet, prefix_delegation=prefixes)
    assert max_pods(machine(described["m5.xlarge"]), of) == pods


def test_bottlerocket_ignores_pods_per_core(described: Described) -> None:
    kubelet = Kubelet(pods_per_core=8)
    of = NodeClass(family=AmiFamily.BOTTLEROCKET, kubelet=kubelet)
    assert max_pods(machine(described["m5.xlarge"]), of) == 58


def test_prefix_delegation_is_capped_by_size(described: Described) -> None:
    of = NodeClass(prefix_delegation=True)
    assert max_pods(machine(described["m5.8xlarge"]), of) == 250
    assert max_pods(machine(described["m5.4xlarge"]), of) == 110
    # 2 interfaces of 2 addresses: 2 x 1 x 16 + 2
    assert max_pods(machine(described["t3.nano"]), of) == 34


def test_windows_has_one_interface_for_pods(described: Described) -> None:
    of = NodeClass(family=AmiFamily.WINDOWS_2022)
    assert max_pods(machine(described["m5.large"]), of) == 9


@pytest.mark.parametrize(
    ("of", "addresses"),
    [
        (NodeClass(family=AmiFamily.WINDOWS_2022), 9),
        (NodeClass(family=AmiFamily.WINDOWS_2022, kubelet=Kubelet(max_pods=5)), 9),
        (NodeClass(family=AmiFamily.WINDOWS_2022, prefix_delegation=True), 144),
        (NodeClass(), 0),
    ],
)
def test_only_windows_has_addresses_that_pods_request(
    described: Described, of: NodeClass, addresses: int
) -> None:
    whole, left = node(described, "m5.large", of)
    for published in (whole, left):
        assert int(published.get("vpc.amazonaws.com/PrivateIPv4Address", "0")) == addresses


def test_memory_is_reserved_by_addresses_on_amazon_linux_and_by_pods_on_bottlerocket(
    described: Described,
) -> None:
    for family, counted in ((AmiFamily.AL2, 29), (AmiFamily.AL2023, 29), ("Bottlerocket", 110)):
        of = NodeClass(family=AmiFamily(family), kubelet=Kubelet(max_pods=110))
        _, left = node(described, "m5.large", of)
        assert left["memory"] == f"{7577 - (11 * counted + 255) - 100}Mi"
        assert left["pods"] == "110"


def test_configured_reservations_replace_kube_reserved_and_add_system_reserved(
    described: Described,
) -> None:
    kubelet = Kubelet(
        kube_reserved=Resources.parsed({"cpu": "200m", "memory": "100Mi"}),
        system_reserved=Resources.parsed({"cpu": "100m", "memory": "100Mi"}),
    )
    _, left = node(described, "m5.large", NodeClass(kubelet=kubelet))
    assert left["cpu"] == "1700m"
    assert left["memory"] == f"{7577 - 100 - 100 - 100}Mi"
    assert left["ephemeral-storage"] == "17Gi"


@pytest.mark.parametrize(
    ("memory", "storage", "mib", "gib"),
    [
        ("5%", "10%", math.ceil(7577 * MIB * 5 / 100), 2),
        ("500Mi", "3Gi", 500 * MIB, 3),
        ("100%", "100%", 0, 0),
    ],
)
def test_hard_eviction_is_an_amount_or_a_share_of_the_capacity(
    described: Described, memory: str, storage: str, mib: int, gib: int
) -> None:
    thresholds = {"memory.available": memory, "nodefs.available": storage}
    of = NodeClass(kubelet=Kubelet(eviction_hard=thresholds))
    kind = machine(described["m5.large"])
    left = allocatable(kind, of, capacity(kind, of))
    assert left.of("memory") == (7577 - 574) * MIB - mib
    assert left.of("ephemeral-storage") == (20 - 1 - gib) * 2**30


def test_the_root_volume_or_all_local_disks_hold_ephemeral_storage(described: Described) -> None:
    fifty = NodeClass(storage=50 * 2**30)
    whole, left = node(described, "m5.large", fifty)
    assert (whole["ephemeral-storage"], left["ephemeral-storage"]) == ("50Gi", "44Gi")
    raid = NodeClass(storage=50 * 2**30, raid0=True)
    whole, left = node(described, "m5d.large", raid)
    assert Resources.parsed(whole).of("ephemeral-storage") == 75 * 10**9
    assert Resources.parsed(left).of("ephemeral-storage") == 75 * 10**9 * 9 // 10 - 2**30
    assert node(described, "m5.large", raid)[0]["ephemeral-storage"] == "50Gi"


def test_thresholds_above_the_capacity_leave_nothing(described: Described) -> None:
    of = NodeClass(kubelet=Kubelet(eviction_hard={"memory.available": "100Gi"}))
    assert "memory" not in node(described, "m5.large", of)[1]
