"""Reason codes are unique, complete and in use, and each error shows its code."""

import re
import socket
import subprocess
import sys
from pathlib import Path
from string import Formatter

import pytest
from leeway_sandbox import reasons
from leeway_sandbox.access import new_token
from leeway_sandbox.children import ROOT, RefusedError, SandboxError
from leeway_sandbox.reasons import ReasonError, all_codes

PARTS = ["aws", "kubernetes", "lambda_service"]


def test_every_code_has_a_unique_camel_case_name_a_sentence_and_a_remedy() -> None:
    codes = all_codes()

    assert len({code.name for code in codes}) == len(codes) >= 30
    for code in codes:
        assert re.fullmatch(r"([A-Z][a-z]+)+", code.name)
        assert code.sentence[0].isupper() or code.sentence[0] in "{`"
        assert code.remedy[0].isupper()
        assert code.remedy.endswith(".")


def test_every_code_is_raised_somewhere() -> None:
    names = [name for name, value in vars(reasons).items() if isinstance(value, reasons.ReasonCode)]
    files = [path for path in (ROOT / "sandbox").rglob("*.py") if path.name != "reasons.py"]
    source = "\n".join(path.read_text() for path in files)

    unused = [name for name in names if not re.search(rf"\({name}\b|\b{name},", source)]
    assert set(unused) <= {"CONTROL_REQUEST_REFUSED"}


def test_the_sentence_is_the_text_of_the_error() -> None:
    error = SandboxError(reasons.SANDBOX_NOT_RUNNING, state_dir="/tmp/x")

    assert str(error) == "No sandbox runs with its state in /tmp/x."
    assert error.code == "SandboxNotRunning"


def test_a_relayed_error_keeps_the_code_of_the_other_process() -> None:
    known = RefusedError.relayed("NoSuchInstance", "EC2 has no instance i-1.")
    unknown = RefusedError.relayed("", "nonsense")

    assert (known.code, str(known)) == ("NoSuchInstance", "EC2 has no instance i-1.")
    assert isinstance(known, ReasonError)
    assert (unknown.code, "nonsense" in str(unknown)) == ("ControlRequestRefused", True)


def test_every_placeholder_is_a_name() -> None:
    for code in all_codes():
        fields = [name for _, name, _, _ in Formatter().parse(code.sentence) if name is not None]
        assert all(name.isidentifier() for name in fields)


@pytest.mark.parametrize("part", PARTS)
def test_a_process_exits_with_the_code_in_one_line(tmp_path: Path, part: str) -> None:
    token = tmp_path / "token"
    new_token(token)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        in_use = started(part, "--port", str(port), "--control-token", str(token))
    missing = started(part, "--control-token", str(tmp_path / "none"))
    token.chmod(0o644)
    exposed = started(part, "--control-token", str(token))

    assert in_use == (1, f"PortInUse: Port {port} of 127.0.0.1 is already in use.")
    assert missing[1].startswith("TokenFileMissing: The control token cannot be read from")
    assert exposed[1].startswith("TokenFileExposed: Other users can read the control token in")


def test_access_rules_that_cannot_be_read_end_the_cluster_with_a_code(tmp_path: Path) -> None:
    token = tmp_path / "token"
    new_token(token)
    rules = tmp_path / "rules.yaml"
    arguments = ("--control-token", str(token), "--rbac", str(rules))

    missing = started("kubernetes", *arguments)
    rules.write_text("kind: Pod")
    other_kind = started("kubernetes", *arguments)

    assert missing[1].startswith(f"AccessRulesUnreadable: The access rules in {rules} cannot be")
    assert other_kind[1].startswith(f"AccessRuleNotSupported: {rules}: the kind 'Pod' is not")


def started(part: str, *arguments: str) -> tuple[int, str]:
    """Run a process that cannot start; return its exit status and the last line of its stderr."""
    done = subprocess.run(
        [sys.executable, "-m", f"leeway_sandbox.{part}", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()[-1]
