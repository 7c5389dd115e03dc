"""A journal is read by position and has a maximum length."""

from collections.abc import Mapping
from typing import Any

from leeway_sandbox.control import Journal


def test_new_entries_are_read_from_the_last_position() -> None:
    journal = Journal()
    journal.add("one", node="a")
    first = journal.since(0)
    journal.add("two")
    second = journal.since(first["next"])
    assert [entry["kind"] for entry in first["entries"]] == ["one"]
    assert [entry["kind"] for entry in second["entries"]] == ["two"]
    assert journal.since(second["next"])["entries"] == []


def test_the_oldest_entries_are_dropped_and_positions_stay_valid() -> None:
    journal = Journal(longest=100)
    position = 0
    read: list[Mapping[str, Any]] = []
    for number in range(1000):
        journal.add("tick", number=number)
        if number % 20 == 0:
            answer = journal.since(position)
            position, read = answer["next"], read + answer["entries"]
    read += journal.since(position)["entries"]
    assert [entry["number"] for entry in read] == list(range(1000))
    assert len(journal) <= 100
    late = journal.since(0)
    assert late["next"] == 1000
    assert late["entries"][-1]["number"] == 999
    assert 0 < len(late["entries"]) <= 100
