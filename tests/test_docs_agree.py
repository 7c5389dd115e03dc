"""Pages that speak of one thing say the same of it, and what the code does."""

import re
from pathlib import Path

import pytest
from leeway.notices import NoticeKind
from leeway.policy.rules import VOLUNTARY
from leeway_cli.sandbox.faults import FORMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = {
    NoticeKind.REBALANCE: "rebalance recommendations",
    NoticeKind.SCHEDULED_CHANGE: "scheduled changes",
    NoticeKind.IMPAIRED_STATUS: "failed status checks",
    NoticeKind.UNHEALTHY_NODE: "unhealthy nodes",
}
"""How pages name the notices whose retirements are voluntary."""
RETURNS = {NoticeKind.CAPACITY_RETURN: "no node is given back"}
"""A return of capacity is also how a drifted node of a group is replaced."""


def section(page: str, heading: str) -> str:
    """A section of a page, as one line."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return " ".join(found[1].split())


@pytest.mark.parametrize("kind", sorted(VOLUNTARY))
def test_pause_names_every_voluntary_retirement(kind: NoticeKind) -> None:
    said = section("configuration.md", "Pausing")
    assert (NAMES | RETURNS)[kind] in said
    assert "[drifted node of a group](groups.md)" in said


def test_no_page_says_that_only_detached_instances_are_terminated() -> None:
    rule = re.compile(r"only if its own record (?:says|shows) that Leeway detached[^.;(|]*")
    for page in PAGES:
        said = rule.findall(" ".join(page.read_text(encoding="utf-8").split()))
        assert [one for one in said if "or launched" not in one] == [], page.name


@pytest.mark.parametrize("page", ["security.md", "guarantees.md", "coming-from.md"])
def test_pages_about_do_not_disrupt_name_nodes_that_are_given_back(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if "`karpenter.sh/do-not-disrupt`" in row]
    assert any("giving-back.md#what-keeps-a-node" in row for row in rows)


def test_the_page_of_the_sandbox_has_each_form_of_faults() -> None:
    page = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
    rows = [row.split(" | ")[0] for row in page.splitlines() if row.startswith("| `")]
    written = " ".join(rows)
    forms = [line.split()[0] for line in FORMS.splitlines() if not line.startswith(" ")]
    assert len(forms) > 15
    for form in forms:
        place, _, setting = form.rpartition(":")
        assert f"`{form}`" in written or all(part in written for part in (place, setting)), form


def test_a_command_has_one_row_in_the_page_of_json() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`leeway .*?`) \|", page, re.MULTILINE)
    assert len(rows) > 15
    assert len(rows) == len(set(rows))


def test_the_catalog_is_for_the_function_that_launches() -> None:
    (row,) = re.findall(
        r"^\| `refresh_catalog` \| reads .*$",
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert "provision_nodes" in row


def test_pages_that_use_make_say_that_they_need_it() -> None:
    for name in ("README.md", "docs/demo.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        needed = re.search(r"^(?:\$ )?make [a-z]+", text, re.MULTILINE)
        assert not needed or "GNU make" in text, name
