"""`leeway schedule`: change points as a table, as JSON and as a calendar, and its errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway_cli.main import run

USERS = Path(__file__).parents[1] / "manifests" / "users"
SCALED = USERS / "scaledobject-cron.yaml"

OFFICE = {
    "apiVersion": "leeway.sh/v1",
    "kind": "Headroom",
    "metadata": {"name": "office"},
    "spec": {
        "buffers": [
            {
                "name": "day",
                "pod": {"requests": {"cpu": 1}},
                "replicas": 1,
                "windows": [
                    {
                        "timezone": "Europe/Berlin",
                        "start": "0 9 * * 1-5",
                        "end": "0 18 * * 1-5",
                        "replicas": 4,
                    }
                ],
            },
            {"name": "always", "pod": {"requests": {"cpu": 1}}, "replicas": 2},
        ]
    },
}


@pytest.fixture
def office(tmp_path: Path) -> Path:
    path = tmp_path / "office.yaml"
    path.write_text(yaml.safe_dump(OFFICE))
    return path


def points(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert run(["schedule", *arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)["changes"]


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["schedule", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


def test_the_first_change_point_of_a_scaled_object_is_at_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    span = ["--from", "2026-11-20T12:03:00+09:00", "--to", "2026-11-20T12:20:00+09:00"]
    assert points(["-f", str(SCALED), *span], capsys) == [
        {"at": "2026-11-20T03:03:00Z", "replicas": 5},
        {"at": "2026-11-20T03:05:00Z", "replicas": 0},
        {"at": "2026-11-20T03:15:00Z", "replicas": 5},
    ]


def test_a_buffer_has_its_minimum_outside_of_its_windows(
    office: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    span = ["--from", "2026-11-20", "--to", "2026-11-23T12:00:00Z"]
    assert points(["-f", str(office), *span], capsys) == [
        {"at": "2026-11-20T00:00:00Z", "replicas": 1},
        {"at": "2026-11-20T08:00:00Z", "replicas": 4},
        {"at": "2026-11-20T17:00:00Z", "replicas": 1},
        {"at": "2026-11-23T08:00:00Z", "replicas": 4},
    ]


def test_the_table_has_every_schedule_with_its_reasons(
    office: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    span = ["--from", "2026-11-20", "--to", "2026-11-21"]
    assert run(["schedule", "-f", str(office), "-f", str(SCALED), *span]) == 0
    out = capsys.readouterr().out
    assert "office/day" in out
    assert "inflate-cron-scaled" in out
    assert "No window is open" in out


def test_one_of_several_schedules_is_selected_by_name(
    office: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["-f", str(office), "-f", str(SCALED)]
    named = "expected one of office/day, inflate-cron-scaled"
    assert run(["schedule", *both, "-o", "json"]) == 2
    assert named in json.loads(capsys.readouterr().out)["error"]["message"]
    assert named in refusal([*both, "--name", "nobody"], capsys)
    assert points([*both, "--name", "office/day", "--from", "2026-11-21"], capsys)


def test_scaled_objects_of_one_name_have_their_namespaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(SCALED.read_text())
    files = []
    for namespace, name in (("shop", "web"), ("blog", "web"), ("blog", "other")):
        path = tmp_path / f"{namespace}-{name}.yaml"
        metadata = {"name": name, "namespace": namespace}
        path.write_text(yaml.safe_dump({**document, "metadata": metadata}))
        files += ["-f", str(path)]
    assert run(["schedule", *files]) == 0
    names = {one.split()[0] for one in capsys.readouterr().out.splitlines()[1:]}
    assert names == {"shop/web", "blog/web", "other"}
    expected = "expected one of shop/web, blog/web, other"
    assert expected in refusal([*files, "--name", "web"], capsys)
    assert points([*files, "--name", "blog/web"], capsys)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--from", "yesterday"], "--from: expected a time such as"),
        (["--from", "9999-12-31"], "--from: expected a time from 1970"),
        (["--from", "0001-01-01"], "--from: expected a time from 1970"),
        (["--from", "2026-11-21", "--to", "2026-11-20"], "--to: expected a time after --from"),
        (["--from", "2026-11-21", "--to", "2036-11-20"], "at most a year later"),
    ],
)
def test_invalid_times_are_refused(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed in refusal(["-f", str(SCALED), *arguments], capsys)


def test_a_manifest_without_a_schedule_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("apiVersion: leeway.sh/v1\nkind: Cluster\nmetadata: {name: prod}\n")
    assert "expected a ScaledObject or a Headroom" in refusal(["-f", str(path)], capsys)


def test_the_calendar_has_a_row_for_each_day_and_a_bar_for_each_window(
    office: Path, tmp_path: Path
) -> None:
    page = tmp_path / "week.html"
    assert (
        run(["schedule", "-f", str(office), "--from", "2026-11-16", "--calendar", str(page)]) == 0
    )
    drawn = page.read_text()
    assert drawn.count('<text class="day"') == 7
    # One bar on either side of each working day's window and in it, one on each day off.
    assert drawn.count("<rect") == 5 * 3 + 2
    assert "09:00 to 18:00: 4" in drawn
    assert "Europe/Berlin" in drawn
