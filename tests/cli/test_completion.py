"""A shell completes commands, options, values of options, kinds and nodes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from leeway_cli import main

from tests.sandbox.kubernetes.live import running_cluster


def environment(line: str, kubeconfig: Path | None = None) -> dict[str, str]:
    """What bash sets to complete the last word of a line."""
    words = line.split(" ")
    return {
        "_LEEWAY_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "KUBECONFIG": str(kubeconfig or "/nowhere"),
    }


type Complete = Callable[..., list[str]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """Return the completions of the last word of a line."""

    def run(line: str, kubeconfig: Path | None = None) -> list[str]:
        for name, value in environment(line, kubeconfig).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.argv", ["leeway"])
        with pytest.raises(SystemExit):
            main.main()
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.split()

    return run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_a_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert f"_LEEWAY_COMPLETE=complete_{shell}" in printed


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("leeway dr", "drain"),
        ("leeway sandbox fa", "faults"),
        ("leeway drain --ignore", "--ignore-daemonsets"),
        ("leeway drain n --on-blocked w", "wait"),
        ("leeway get head", "headrooms"),
    ],
)
def test_a_word_is_completed(line: str, word: str, complete: Complete) -> None:
    assert complete(line) == [word]


def test_nodes_are_completed_from_the_cluster_and_not_without_an_answer(
    tmp_path: Path, complete: Complete
) -> None:
    with running_cluster(tmp_path) as live:
        first, second = sorted(live.add_nodes(1, 2))
        done = subprocess.run(
            [sys.executable, "-m", "leeway_cli"],
            env={**os.environ, **environment("leeway explain node ip-", live.kubeconfig())},
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout.split(), done.stderr) == ([first, second], "")
        assert complete(f"leeway drain {first} ip-", live.kubeconfig()) == [second]
    assert complete("leeway drain ip-", live.kubeconfig()) == []
