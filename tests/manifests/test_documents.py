"""Reading of YAML and JSON text: the same values as in kubectl, and one-line errors."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from leeway.manifests import documents
from leeway.manifests.documents import DEEPEST, LARGEST_TEXT, as_yaml, read_documents


def plain(text: str) -> list[Any]:
    found = read_documents(text, "f.yaml")
    assert found.problems == ()
    return [value.plain() for value in found.values]


def problem(text: str) -> str:
    """The one problem of a text."""
    (found,) = read_documents(text, "f.yaml").problems
    return str(found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None),
        ("yes", True),
        ("Off", False),
        ("y", "y"),
        ("1_000", 1000),
        ("0755", 493),
        ("0x1F", 31),
        ("-0b_1_0", -2),
        ("0_", 0),
        ("0x_", "0x_"),
        ("-0x_", "-0x_"),
        ("0b_", "0b_"),
        ("+0o_", "+0o_"),
        ("08", 8.0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".inf", ".inf"),
        ("12:30:00", "12:30:00"),
        ("2026-11-21", "2026-11-21"),
        ("00,15,30,45 * * * *", "00,15,30,45 * * * *"),
        ("'true'", "true"),
        ("!!str 5", "5"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_plain_scalar_has_the_same_type_as_in_kubectl(text: str, value: Any) -> None:
    assert plain(f"key: {text}") == [{"key": value}]


def test_several_documents_are_read_and_empty_documents_are_skipped() -> None:
    assert plain("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n...\n") == [{"a": 1}, {"b": 2}]


def test_keys_are_always_text() -> None:
    assert plain("on: 1\n2: x\nyes: y\n") == [{"on": 1, "2": "x", "yes": "y"}]


def test_aliases_and_merges_are_expanded_and_local_keys_override_merged_keys() -> None:
    text = "base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\nlist: [*b]\n"
    assert plain(text)[0]["mine"] == {"x": 1, "y": 3}
    assert plain(text)[0]["list"] == [{"x": 1, "y": 2}]


def test_json_with_tabs_is_read() -> None:
    assert plain('{\n\t"a": [1, 2.5, null, true, "x"],\n\t"b": {}\n}') == [
        {"a": [1, 2.5, None, True, "x"], "b": {}}
    ]


def test_each_value_has_its_line() -> None:
    (value,) = read_documents("a:\n  b:\n    - c: 1\n    - d: 2\n", "f.yaml").values
    assert value.line_of(("a", "b", 1, "d")) == 4
    assert value.line_of(("a", "b")) == 2
    assert value.line_of(("a", "nowhere", "at", "all")) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: duplicate key 'a', first set on line 1"),
        ("a:\n\tb: 1\n", "f.yaml:2: tab in the indentation; YAML allows only spaces"),
        ("a: [1, 2\n", "f.yaml:2: not valid YAML: did not find expected ',' or ']'"),
        ("a: *nobody\n", "f.yaml:1: unknown alias *nobody: expected an anchor"),
        ("a: &a [*a]\n", "f.yaml:1: unknown alias *a: expected an anchor"),
        (
            "a: !!python/object:os.system x\n",
            "f.yaml:1: unsupported tag !!python/object:os.system: expected a plain value",
        ),
        ("? [a]\n: b\n", "f.yaml:1: expected text as a key"),
        ("a: \x00\n", "f.yaml: not valid YAML: "),
        ("[" * (DEEPEST + 2), f"f.yaml:1: expected at most {DEEPEST} levels of nesting"),
    ],
)
def test_a_syntax_error_is_one_line_with_file_and_line(text: str, said: str) -> None:
    assert said in problem(text)
    assert "\n" not in problem(text)


def test_a_yaml_bomb_is_refused_without_expansion() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert "KB; the limit is 32,768 KB" in problem("\n".join(lines))


def test_repeated_merges_of_a_large_mapping_are_refused() -> None:
    base = "base: &b {" + ", ".join(f"k{n}: {n}" for n in range(20_000)) + "}\n"
    text = base + "list:\n" + "- {<<: *b}\n" * 20_000
    assert "KB; the limit is 32,768 KB" in problem(text)


def test_aliases_count_for_the_nesting_limit() -> None:
    nests = ["a0: &a0 x"]
    nests += [f"a{n}: &a{n} {'[' * 40}*a{n - 1}{']' * 40}" for n in range(1, 60)]
    assert f"expected at most {DEEPEST} levels of nesting" in problem("\n".join(nests))


def test_too_many_documents_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_DOCUMENTS", 1000)
    assert not read_documents("--- x\n" * 1000, "f").problems
    (problem,) = read_documents("--- x\n" * 1001, "f").problems
    assert "expected at most 1,000 documents" in str(problem)


def test_a_file_of_twenty_thousand_pods_is_read() -> None:
    found = read_documents("--- {kind: Pod}\n" * 20_000, "f")
    assert (len(found.values), found.problems) == (20_000, ())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"a": "\ud83d\uDE00"}', "😀"),
        (r'{"a": "\\ud83d\\ude00"}', r"\ud83d\ude00"),
        (r'{"a": "\u00e9"}', "é"),
    ],
)
def test_unicode_escapes_of_json_are_decoded(text: str, value: str) -> None:
    assert plain(text) == [{"a": value}]


def test_a_text_that_is_too_large_is_not_parsed() -> None:
    assert "the limit is 32,768 KB" in problem("[" * (LARGEST_TEXT + 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=60)
@given(JSON.filter(lambda v: v is not None))
@example("0E0")
@example({"on": ["1_0", "0o7", "0x_", "y"]})
@example({"\x85": "a\u2028b\u2029"})
def test_dumped_yaml_is_read_back_with_the_size_of_its_json(value: Any) -> None:
    text = as_yaml({"k": value})
    found = read_documents(text, "f.yaml")
    if found.problems:  # characters that YAML has no way to take
        assert all("not valid YAML" in str(p) or "duplicate key" in str(p) for p in found.problems)
        return
    (read,) = found.values
    assert read.plain() == {"k": value}
    compact = json.dumps(read.plain(), ensure_ascii=False, separators=(",", ":"))
    assert (
        len(compact.encode())
        <= read.size
        <= len(compact.encode()) + 4 * compact.count("{") + 4 * compact.count("[")
    )


@settings(max_examples=100)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?~<\n\t 01", max_size=60))
def test_every_text_gives_values_or_one_line_problems(text: str) -> None:
    for found in read_documents(text, "f.yaml").problems:
        assert "\n" not in str(found)
