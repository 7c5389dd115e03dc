"""A shell completes commands, options, values of options, kinds and nodes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from leeway_cli import main

from tests.sandbox.kubernetes.live import Live, running_cluster


def completed(line: str, kubeconfig: Path | None = None) -> list[str]:
    """Return the completions of the last word of a line in bash."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_LEEWAY_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "KUBECONFIG": str(kubeconfig or "/nowhere"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "leeway_cli"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_a_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert f"_LEEWAY_COMPLETE=complete_{shell}" in printed


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("leeway dr", ["drain"]),
        ("leeway sandbox fa", ["faults"]),
        ("leeway drain --ignore", ["--ignore-daemonsets"]),
        ("leeway drain n --on-blocked w", ["wait"]),
        ("leeway get head", ["headrooms"]),
    ],
)
def test_a_word_is_completed(line: str, words: list[str]) -> None:
    assert completed(line) == words


def test_nodes_are_completed_from_the_cluster_and_not_without_an_answer(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as live:
        names = two_nodes(live)
        assert completed("leeway drain ip-", live.kubeconfig()) == names
        assert completed(f"leeway drain {names[0]} ip-", live.kubeconfig()) == names[1:]
        assert completed("leeway explain node ip-", live.kubeconfig()) == names
    assert completed("leeway drain ip-", live.kubeconfig()) == []


def two_nodes(live: Live) -> list[str]:
    return sorted(live.add_nodes(1, 2))
