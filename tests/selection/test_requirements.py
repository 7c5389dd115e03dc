"""The algebra of requirements, compared with a model that tries every value."""

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.selection.requirements import BadRequirement, Operator, Requirement, Requirements

# All values that any requirement below can tell apart, texts and integers; None: no such label.
UNIVERSE: list[str | None] = [None, "a", "b", "c", "", "07", "+5", *(str(n) for n in range(-1, 9))]
KEY = "example.com/tier"

values = st.lists(st.sampled_from(["a", "b", "07", "0", "3", "4", "7"]), min_size=1, max_size=4)
bounds = st.integers(0, 7).map(lambda n: [str(n)])
written: st.SearchStrategy[tuple[Operator, list[str]]] = st.one_of(
    st.tuples(st.sampled_from([Operator.IN, Operator.NOT_IN]), values),
    st.tuples(st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST]), st.just([])),
    st.tuples(st.sampled_from([Operator.GT, Operator.LT, Operator.GTE, Operator.LTE]), bounds),
)


def integer(value: str) -> int | None:
    """The model's integers: as str prints them."""
    try:
        number = int(value)
    except ValueError:
        return None
    return number if str(number) == value else None


def meets(operator: Operator, given: list[str], value: str | None) -> bool:
    """The model: one requirement, one value."""
    if value is None:
        return operator in {Operator.NOT_IN, Operator.DOES_NOT_EXIST}
    number = integer(value)
    match operator:
        case Operator.IN:
            return value in given
        case Operator.NOT_IN:
            return value not in given
        case Operator.EXISTS:
            return True
        case Operator.DOES_NOT_EXIST:
            return False
        case Operator.GT:
            return number is not None and number > int(given[0])
        case Operator.LT:
            return number is not None and number < int(given[0])
        case Operator.GTE:
            return number is not None and number >= int(given[0])
        case Operator.LTE:
            return number is not None and number <= int(given[0])


def met(asked: list[tuple[Operator, list[str]]]) -> Requirement:
    """All of them in one requirement."""
    return Requirements(Requirement.of(KEY, o, v) for o, v in asked)[KEY]


@given(st.lists(written, min_size=1, max_size=4))
def test_an_intersection_holds_of_the_values_that_meet_every_requirement(
    asked: list[tuple[Operator, list[str]]],
) -> None:
    requirement = met(asked)
    for value in UNIVERSE:
        expected = all(meets(o, v, value) for o, v in asked)
        assert requirement.admits(value) is expected, (value, str(requirement))


@given(st.lists(written, min_size=1, max_size=4))
def test_it_is_empty_just_where_no_value_and_no_absence_meets_it(
    asked: list[tuple[Operator, list[str]]],
) -> None:
    requirement = met(asked)
    wide = [*UNIVERSE, "zzz", *(str(n) for n in range(-20, 30))]
    assert requirement.is_empty is not any(requirement.admits(value) for value in wide)
    assert requirement.has_values is any(requirement.admits(v) for v in wide if v is not None)


@given(written, written, written)
def test_the_order_of_intersecting_does_not_matter(
    one: tuple[Operator, list[str]],
    two: tuple[Operator, list[str]],
    three: tuple[Operator, list[str]],
) -> None:
    a, b, c = (Requirement.of(KEY, o, v) for o, v in (one, two, three))
    ways = [
        a.intersection(b).intersection(c),
        c.intersection(b.intersection(a)),
        b.intersection(a.intersection(c)),
    ]
    for x, y in itertools.pairwise(ways):
        assert [x.admits(v) for v in UNIVERSE] == [y.admits(v) for v in UNIVERSE]
    assert a.intersection(a) == a


two_keys = st.dictionaries(
    st.sampled_from([KEY, "kubernetes.io/arch"]), written, min_size=0, max_size=2
)


def requirements(asked: Mapping[str, tuple[Operator, list[str]]]) -> Requirements:
    """As many as are asked for."""
    return Requirements(Requirement.of(key, o, v) for key, (o, v) in asked.items())


@given(two_keys, two_keys)
def test_a_pool_and_a_pod_are_compatible_where_some_node_meets_both(
    pool: dict[str, tuple[Operator, list[str]]], pod: dict[str, tuple[Operator, list[str]]]
) -> None:
    ours, theirs = requirements(pool), requirements(pod)
    wide = [*UNIVERSE, "zzz", *(str(n) for n in range(-20, 30))]

    def some_node(key: str) -> bool:
        # A label that the pool does not name is on no node of it, unless instance types bring it.
        if key not in ours:
            return (key != KEY and not theirs[key].is_empty) or theirs[key].admits(None)
        return any(ours[key].admits(v) and theirs[key].admits(v) for v in wide)

    assert ours.compatible(theirs) is all(some_node(key) for key in theirs)


@given(
    two_keys, st.dictionaries(st.sampled_from([KEY, "kubernetes.io/arch"]), st.sampled_from("a"))
)
def test_labels_are_admitted_that_meet_every_requirement(
    asked: dict[str, tuple[Operator, list[str]]], labels: dict[str, str]
) -> None:
    expected = all(meets(o, v, labels.get(key)) for key, (o, v) in asked.items())
    assert requirements(asked).admits(labels) is expected


@given(st.one_of(st.none(), st.integers(1, 9)), st.one_of(st.none(), st.integers(1, 9)))
def test_min_values_of_an_intersection_is_the_larger(one: int | None, other: int | None) -> None:
    a = Requirement.of(KEY, "Exists", min_values=one)
    b = Requirement.of(KEY, "In", ["a"], min_values=other)
    assert a.intersection(b).min_values == max(filter(None, (one, other)), default=None)


def test_contradictory_bounds_match_no_node() -> None:
    crossed = met([(Operator.GT, ["8"]), (Operator.LT, ["4"])])
    assert crossed.operator is Operator.DOES_NOT_EXIST
    assert crossed.is_empty
    assert not crossed.admits(None)
    assert not crossed.admits("6")
    assert str(crossed) == f"{KEY} Gt 8 and Lt 4, which leaves no value"


BOUNDS = [
    ((Operator.GT, "9"), (Operator.LT, "9")),
    ((Operator.GT, "9"), (Operator.LT, "1")),
    ((Operator.GT, "1"), (Operator.LT, "1")),
    ((Operator.LT, "9"), (Operator.GT, "9")),
    ((Operator.LT, "1"), (Operator.GT, "9")),
    ((Operator.LT, "1"), (Operator.GT, "1")),
]


@pytest.mark.parametrize("key", [KEY, "topology.kubernetes.io/zone"])
def test_contradictory_bounds_of_pool_and_pod_are_a_conflict(key: str) -> None:
    for pool, pod in BOUNDS:
        given = Requirements([Requirement.of(key, pool[0], [pool[1]])])
        asked = Requirements([Requirement.of(key, pod[0], [pod[1]])])
        assert not given.agrees(asked), (pool, pod)
        assert given.conflict(asked) == f"{asked} conflicts with {given} of the pool"


def test_contradictory_bounds_of_one_pod_are_a_conflict_with_every_pool() -> None:
    asked = Requirements([met([(Operator.GT, ["8"]), (Operator.LT, ["4"])])])
    assert Requirements().conflict(asked) == f"{KEY} Gt 8 and Lt 4, which leaves no value"


def test_older_names_of_labels_are_the_same_labels() -> None:
    old = Requirement.of("beta.kubernetes.io/arch", "In", ["amd64"])
    assert old == Requirement.of("kubernetes.io/arch", "In", ["amd64"])
    zone = Requirements.from_labels({"failure-domain.beta.kubernetes.io/zone": "us-east-1a"})
    assert zone.admits({"topology.kubernetes.io/zone": "us-east-1a"})


def test_a_label_that_a_pool_does_not_name_is_had_only_if_instance_types_bring_it() -> None:
    pool = Requirements([Requirement.of("kubernetes.io/arch", "In", ["nvidia", "amd64"])])
    assert pool.compatible(Requirements.from_labels({"topology.kubernetes.io/zone": "us-east-1a"}))
    assert not pool.compatible(Requirements.from_labels({"team": "a"}))
    assert pool.compatible(Requirements([Requirement.of("team", "NotIn", ["a"])]))
    assert pool.conflict(Requirements.from_labels({"kubernetes.io/arch": "arm64"})) == (
        "arch In [arm64] conflicts with arch In [amd64, nvidia] of the pool"
    )


@pytest.mark.parametrize(
    ("key", "operator", "given", "said"),
    [
        ("arch", "in", ["a"], 'expected one of In, NotIn, .*, got "in"'),
        ("arch", "In", [], "expected at least one value for In"),
        ("arch", "Exists", ["a"], r"expected no values for Exists, got \[a\]"),
        ("arch", "Gt", ["a"], r"expected one integer for Gt, got \[a\]"),
        ("arch", "Gt", ["1", "2"], r"expected one integer for Gt, got \[1, 2\]"),
        ("a b", "Exists", [], "expected a label's name"),
        ("/x", "Exists", [], "expected a label's name"),
        ("arch", "In", ["a\nb"], "expected a label's value"),
        ("arch", "In", ["x" * 64], "expected a label's value"),
    ],
)
def test_a_bad_requirement_is_refused_with_what_was_expected(
    key: str, operator: str, given: list[str], said: str
) -> None:
    with pytest.raises(BadRequirement, match=said):
        Requirement.of(key, operator, given)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("zone", "topology.kubernetes.io/zone"),
        ("arch", "kubernetes.io/arch"),
        ("capacity-type", "karpenter.sh/capacity-type"),
        ("karpenter.sh/capacity-types", "karpenter.sh/capacity-type"),
        ("karpenter.k8s.aws/instance-famliy", "karpenter.k8s.aws/instance-family"),
        ("kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        ("example.com/taem", "example.com/team"),
    ],
)
def test_an_unknown_label_gets_a_suggestion(key: str, meant: str) -> None:
    pool = Requirements.from_labels({"example.com/team": "web"})
    assert pool.conflict(Requirements.from_labels({key: "a"})) == (
        f"{key} In [a]: no node of the pool has the label; did you mean {meant}?"
    )


def test_an_unknown_label_without_a_similar_one_gets_no_suggestion() -> None:
    said = Requirements().conflict(Requirements.from_labels({"gate": "a"}))
    assert said == "gate In [a]: no node of the pool has the label"
