"""Quantities: parsed exactly, formatted as in Kubernetes."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.selection.resources import (
    BadQuantity,
    Resources,
    amount,
    milli,
    parse,
    printed,
    quantity,
    requested_quantity,
    whole,
)
from lightkube.utils.quantity import parse_quantity

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

numbers = st.one_of(
    st.integers(0, 10**6).map(str),
    st.builds(lambda a, b: f"{a}.{b}", st.integers(0, 9999), st.integers(0, 999)),
    st.integers(0, 999).map(lambda a: f".{a}"),
    st.integers(0, 999).map(lambda a: f"{a}."),
)
signs = st.sampled_from(["", "", "+", "-"])
decimals = st.tuples(signs, numbers, st.sampled_from(sorted(DECIMAL)))
binaries = st.tuples(signs, numbers, st.sampled_from(sorted(BINARY)))
exponents = st.tuples(
    signs, numbers, st.builds(lambda e, n: f"{e}{n}", st.sampled_from("eE"), st.integers(-9, 18))
)


def exactly(sign: str, number: str, suffix: str) -> Fraction:
    """The reference: what the text says, before Kubernetes rounds or caps it."""
    value = Fraction(Decimal(f"{sign}{number}"))
    if suffix not in DECIMAL and suffix not in BINARY:
        return value * Fraction(10) ** int(suffix[1:])
    return value * (2 ** BINARY[suffix] if suffix in BINARY else Fraction(10) ** DECIMAL[suffix])


@given(st.one_of(decimals, exponents))
def test_a_decimal_quantity_is_its_exact_value_down_to_a_billionth(
    parts: tuple[str, str, str],
) -> None:
    value = exactly(*parts)
    nano = value * 10**9
    away = (
        -(-nano.numerator // nano.denominator) if nano > 0 else nano.numerator // nano.denominator
    )
    assert parse("".join(parts)) == Fraction(away, 10**9)


@given(binaries)
def test_a_binary_quantity_is_its_exact_value_up_to_what_an_integer_of_64_bits_holds(
    parts: tuple[str, str, str],
) -> None:
    value = exactly(*parts)
    assert abs(parse("".join(parts))) == min(abs(value), Fraction(2**63 - 1))


@given(st.one_of(decimals, binaries, exponents))
def test_printing_keeps_the_value_and_printing_again_changes_nothing(
    parts: tuple[str, str, str],
) -> None:
    text = "".join(parts)
    assert parse(str(quantity(text))) == parse(text)
    assert str(quantity(str(quantity(text)))) == str(quantity(text))


@given(st.one_of(decimals, binaries, exponents))
def test_a_printed_number_is_an_integer_that_no_larger_suffix_would_hold(
    parts: tuple[str, str, str],
) -> None:
    value, shown = parse("".join(parts)), str(quantity("".join(parts)))
    split = re.fullmatch(r"-?([0-9]+)(e-?[0-9]+|[a-zA-Z]*)", shown)
    assert split
    # Binary suffixes are for whole numbers from 1024 up.
    binary = parts[2] in BINARY and abs(value) >= 1024 and value.denominator == 1
    assert not (split[2] in BINARY and not binary)
    if value and split[2] not in {"E", "Ei"}:
        assert int(split[1]) % (1024 if binary else 1000)


# What apimachinery's Quantity.String() gives for each.
SHOWN = {
    "0": "0",
    "0Mi": "0",
    "1024Mi": "1Gi",
    "1.5Gi": "1536Mi",
    "1000m": "1",
    "0.1": "100m",
    "1930m": "1930m",
    "1e3": "1e3",
    "1E3": "1e3",
    "12e4": "120e3",
    "1E": "1E",
    "1000k": "1M",
    "1023Ki": "1023Ki",
    "0.5Ki": "512",
    "0.1Ki": "102400m",
    "16Ei": "9223372036854775807",
    "0.0000000001": "1n",
    "-1.5Gi": "-1536Mi",
    "3167538380800m": "3167538380800m",
    "128974848": "128974848",
    "129e6": "129e6",
    "123Mi": "123Mi",
}


def test_quantities_are_printed_as_kubernetes_prints_them() -> None:
    assert {text: str(quantity(text)) for text in SHOWN} == SHOWN


def test_memory_in_thousandths_of_bytes_is_legal_and_rounded_up() -> None:
    assert whole("3167538380800m") == 3167538381
    assert milli("0.0005") == 1
    assert amount("cpu", "1.5") == 1500
    assert amount("memory", "1Ki") == 1024


def test_an_amount_is_printed_with_its_resources_own_suffixes() -> None:
    assert printed("cpu", 1930) == "1930m"
    assert printed("cpu", 4000) == "4"
    assert printed("memory", 7577 * 2**20) == "7577Mi"
    assert printed("pods", 29) == "29"
    assert printed("ephemeral-storage", 20 * 2**30) == "20Gi"


@pytest.mark.parametrize(
    "text",
    ["", "m", ".", "1x", "1 Gi", "1KiB", "0x10", "1e", "1e1000", "1_000", "9" * 65, "--1"],
)
def test_an_invalid_quantity_is_rejected_with_the_expected_form(text: str) -> None:
    with pytest.raises(BadQuantity, match="expected a quantity like"):
        parse(text)


def test_resources_add_subtract_and_fit_name_by_name() -> None:
    one = Resources.parsed({"cpu": "500m", "memory": "1Gi"})
    other = Resources.parsed({"cpu": 1, "nvidia.com/gpu": "1"})
    assert (one + other).printed() == {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert one + other - other == one
    assert one.times(3).of("cpu") == 1500
    assert one.most(other) == Resources.parsed({"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 1})
    assert one.fits(one)
    assert not one.fits(other)
    assert Resources().fits(Resources())
    assert hash(one) == hash(Resources({"memory": 2**30, "cpu": 500}))


@pytest.mark.parametrize("text", ["-1", "-1Gi", "1e999", "10E"])
def test_a_quantity_that_cannot_be_requested_is_rejected(text: str) -> None:
    with pytest.raises(BadQuantity, match="expected an amount"):
        requested_quantity(text)


def test_the_largest_amount_of_64_bits_can_be_requested() -> None:
    assert requested_quantity("9E").value == 9 * 10**18
    assert requested_quantity("9223372036854775807").value == 2**63 - 1


plain_numbers = st.builds(lambda a, b: f"{a}.{b}", st.integers(0, 9999), st.integers(0, 999))
known_to_both = st.sampled_from(["m", "", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"])


@given(plain_numbers, known_to_both)
def test_lightkube_reads_the_grammar_that_both_know_as_we_do(number: str, suffix: str) -> None:
    text = f"{number}{suffix}"
    read = parse_quantity(text)
    assert read is not None
    assert math.ceil(read * 1000) == milli(text)


@pytest.mark.parametrize("text", ["100u", "5n", "1E3"])
def test_lightkube_rejects_quantities_that_kubernetes_accepts(text: str) -> None:
    assert quantity(text).value > 0
    with pytest.raises(ValueError, match="suffix"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1Zi", "1Y", "١"])
def test_lightkube_accepts_quantities_that_kubernetes_rejects(text: str) -> None:
    assert parse_quantity(text) is not None
    with pytest.raises(BadQuantity):
        quantity(text)
