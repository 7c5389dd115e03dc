"""The demo of `leeway switch`, whole: its clocks only shorten the waits of a minute."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from leeway_cli import main
from leeway_sandbox.karpenter import Karpenter

LATE = timedelta(seconds=45)
"""By this much the clock of Karpenter is late: its Lease looks old that much earlier after its
stop. It looks alive for a minute."""

_QUICK = """
from datetime import timedelta
import leeway_cli.switch.plan
leeway_cli.switch.plan.QUIET_FOR = timedelta(seconds=5)
"""
"""The command waits less for runs that began before it: the functions run for seconds here."""


class LateKarpenter(Karpenter):
    """A Karpenter whose clock is late."""

    def act(self, now: datetime | None = None) -> None:
        super().act((now or datetime.now(UTC)) - LATE)


def test_the_nodes_of_karpenter_go_to_leeway_and_back_and_no_pod_restarts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from leeway_cli.demo import switch

    page = tmp_path / "report.html"
    monkeypatch.setattr(switch, "Karpenter", LateKarpenter)
    monkeypatch.setattr(switch, "_RUN", _QUICK + switch._RUN)

    code = main.run(["demo", "--scenario", "switch", "--report", str(page), "-o", "json"])

    report = json.loads(capsys.readouterr().out)
    titles = [one["title"] for one in report["marks"]]
    assert (code, report["faults"]) == (0, [])
    assert len(report["pods"]) == 12
    assert [one["pod"] for one in report["pods"] if one["endedAt"] is not None] == []
    assert len({one["node"] for one in report["pods"]}) == len(report["claims"]) == 4
    assert (report["launched"], report["ended"], report["cordons"]) == (3, 0, 0), "one is Leeway's"
    there = titles.index("leeway switch --from karpenter")
    back = titles.index("leeway switch --to karpenter")
    assert "record that Leeway launches nodes" in titles[there:back]
    assert "write 1 NodeClaim" in titles[back:]
    assert "12 of 12 pods ran through the switch" in page.read_text()
