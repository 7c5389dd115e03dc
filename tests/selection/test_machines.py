"""Labels and hardware of instance types, from DescribeInstanceTypes alone."""

from collections.abc import Mapping
from typing import Any

import pytest
from leeway.selection.labels import INSTANCE, INSTANCE_LABELS
from leeway.selection.offers.machines import machine
from leeway.selection.requirements import check_key, check_value, integer

Described = Mapping[str, Mapping[str, Any]]

NUMBERS = (
    *("cpu", "memory", "generation", "ebs-bandwidth", "network-bandwidth", "local-nvme"),
    *("gpu-count", "gpu-memory", "accelerator-count", "cpu-sustained-clock-speed-mhz"),
)


def own_labels(described: Described, name: str) -> dict[str, str]:
    """One type's labels without their prefix."""
    labels = machine(described[name]).labels
    return {
        key.removeprefix(INSTANCE): value
        for key, value in labels.items()
        if key.startswith(INSTANCE)
    }


def test_every_type_of_a_region_has_labels_that_kubernetes_takes(described: Described) -> None:
    for name in described:
        labels = machine(described[name]).labels
        for key, value in labels.items():
            check_key(key)
            check_value(value)
            assert value
        for number in NUMBERS:
            assert integer(labels.get(f"{INSTANCE}{number}", "0")) is not None
        for always in ("family", "size", "cpu", "memory", "cpu-manufacturer"):
            assert f"{INSTANCE}{always}" in labels, name
        # The names of some Macs, which boot nothing that Kubernetes runs on, have no generation.
        assert f"{INSTANCE}category" in labels or not machine(described[name]).bootable


def test_every_label_of_an_instance_type_is_one_that_requirements_know(
    described: Described,
) -> None:
    used = {key for name in described for key in machine(described[name]).labels}
    assert {key for key in used if key.startswith(INSTANCE)} == set(INSTANCE_LABELS)


def test_a_type_without_gpu_or_disk_has_no_label_of_either(described: Described) -> None:
    assert own_labels(described, "m5.large") == {
        "category": "m",
        "family": "m5",
        "generation": "5",
        "size": "large",
        "cpu": "2",
        "memory": "8192",
        "cpu-manufacturer": "intel",
        "cpu-sustained-clock-speed-mhz": "3100",
        "ebs-bandwidth": "4750",
        "network-bandwidth": "750",
        "hypervisor": "nitro",
        "capability-flex": "false",
        "encryption-in-transit-supported": "false",
    }


def test_a_gpu_type_says_which_how_many_and_how_large(described: Described) -> None:
    labels = own_labels(described, "g4dn.12xlarge")
    assert labels["gpu-name"] == "t4"
    assert labels["gpu-manufacturer"] == "nvidia"
    assert labels["gpu-count"] == "4"
    assert labels["gpu-memory"] == "16384"
    assert labels["local-nvme"] == "900"
    assert machine(described["g4dn.12xlarge"]).devices == {
        "nvidia.com/gpu": 4,
        "vpc.amazonaws.com/efa": 1,
    }


def test_a_fractional_gpu_is_one_gpu_of_the_node_and_none_by_its_label(
    described: Described,
) -> None:
    shared = machine(described["g6f.xlarge"])
    assert shared.devices == {"nvidia.com/gpu": 1}
    assert shared.shares_gpu
    assert not machine(described["g6.xlarge"]).shares_gpu
    assert own_labels(described, "g6f.xlarge")["gpu-count"] == "0"


def test_neuron_devices_are_counted_and_named(described: Described) -> None:
    labels = own_labels(described, "inf2.24xlarge")
    assert labels["accelerator-name"] == "inferentia2"
    assert labels["accelerator-manufacturer"] == "aws"
    assert labels["accelerator-count"] == "6"
    assert machine(described["inf2.24xlarge"]).devices == {
        "aws.amazon.com/neuron": 6,
        "aws.amazon.com/neuroncore": 12,
    }


def test_elastic_fabric_adapters_are_counted_as_ec2_describes_them(described: Described) -> None:
    assert machine(described["c5n.18xlarge"]).devices == {"vpc.amazonaws.com/efa": 1}
    assert machine(described["p5.48xlarge"]).devices["vpc.amazonaws.com/efa"] == 32
    supported = [n for n, d in described.items() if d["NetworkInfo"].get("EfaSupported")]
    having = [n for n in described if machine(described[n]).devices.get("vpc.amazonaws.com/efa")]
    assert having == supported
    assert len(having) == 289


def test_the_first_network_card_that_takes_an_efa_is_the_primary_one_of_all_types_but_one(
    described: Described,
) -> None:
    cards = {name: machine(document).efa_card for name, document in described.items()}
    assert {name: card for name, card in cards.items() if card} == {"p6-b300.48xlarge": 1}


@pytest.mark.parametrize(
    ("name", "mbps"),
    [
        ("c6in.32xlarge", "200000"),
        ("g6e.48xlarge", "400000"),
        ("i8ge.48xlarge", "300000"),
        ("p4d.24xlarge", "400000"),
        ("c8gn.48xlarge", "600000"),
        ("p5.48xlarge", "3200000"),
        ("m5.large", "750"),
    ],
)
def test_several_network_cards_have_together_what_the_performance_says(
    described: Described, name: str, mbps: str
) -> None:
    assert own_labels(described, name)["network-bandwidth"] == mbps


@pytest.mark.parametrize(
    ("name", "category", "generation"),
    [
        ("m5.large", "m", "5"),
        ("u-6tb1.112xlarge", "u", "1"),
        ("u7i-12tb.224xlarge", "u", "7"),
        ("is4gen.medium", "is", "4"),
        ("hpc7a.96xlarge", "hpc", "7"),
        ("p5en.48xlarge", "p", "5"),
        ("mac2-m2.metal", "mac", "2"),
        ("x2iedn.xlarge", "x", "2"),
    ],
)
def test_category_and_generation_come_from_the_name(
    described: Described, name: str, category: str, generation: str
) -> None:
    labels = own_labels({name: {**described["m5.large"], "InstanceType": name}}, name)
    assert (labels["category"], labels["generation"]) == (category, generation)


def test_names_of_several_words_are_joined_by_dashes(described: Described) -> None:
    names = {own_labels(described, name).get("gpu-name") for name in described}
    assert "rtx-pro-server-6000" in names


def test_two_kinds_of_gpu_have_no_label_but_both_count(described: Described) -> None:
    gpus = [
        {"Name": "T4", "Manufacturer": "NVIDIA", "Count": 1, "MemoryInfo": {"SizeInMiB": 1}},
        {"Name": "L4", "Manufacturer": "NVIDIA", "Count": 2, "MemoryInfo": {"SizeInMiB": 1}},
    ]
    two = {**described["m5.large"], "GpuInfo": {"Gpus": gpus}}
    assert not any("gpu" in key for key in machine(two).labels)
    assert machine(two).devices == {"nvidia.com/gpu": 3}


def test_what_no_known_image_boots_on_is_told(described: Described) -> None:
    assert not machine(described["mac2.metal"]).bootable
    assert machine(described["m5.large"]).bootable
    assert machine(described["m7g.large"]).arm
    paravirtual = {**described["m5.large"], "SupportedVirtualizationTypes": ["paravirtual"]}
    assert not machine(paravirtual).bootable
