"""User data read by parsers that share nothing with Leeway: Python's email and tomllib, PyYAML, a
real bash, and a strict tokenizer of PowerShell.
"""

import email
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SHELL = "text/x-shellscript"
NODE_CONFIG = "application/node.eks.aws"


@dataclass(frozen=True)
class MimePart:
    """A part as Python's email reads it."""

    content_type: str
    payload: str
    headers: tuple[tuple[str, str], ...]


def mime_parts(text: str) -> list[MimePart]:
    """The parts of the outermost level."""
    message = email.message_from_string(text)
    assert message.is_multipart()
    assert message.defects == []
    return [_part(one) for one in message.get_payload()]


def _part(message: Any) -> MimePart:
    payload = message.get_payload()
    text = message.as_string() if message.is_multipart() else payload
    return MimePart(message.get_content_type(), text, tuple(message.items()))


def node_config(text: str) -> dict[str, Any]:
    """The NodeConfig that nodeadm makes of an archive: merged in the order of its parts."""
    merged: dict[str, Any] = {}
    for part in mime_parts(text):
        if part.content_type == NODE_CONFIG:
            merged = _merged(merged, yaml.safe_load(part.payload))
    return merged


def _merged(first: Any, second: Any, path: str = "") -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        keys = [*first, *(key for key in second if key not in first)]
        return {
            key: _merged(first[key], second[key], f"{path}.{key}")
            if key in first and key in second
            else second.get(key, first.get(key))
            for key in keys
        }
    if path == ".spec.kubelet.flags":
        return [*first, *second]
    return second or first


def flags(words: list[str]) -> dict[str, str]:
    """Flags by name, as pflag reads them: of one that is repeated the last, but all labels."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        assert re.fullmatch(r"--[a-z-]+", name), word
        assert equals
        if name == "--node-labels" and name in found:
            value = f"{found[name]},{value}"
        found[name] = value
    return found


def pairs(text: str, between: str = "=") -> dict[str, str]:
    """`a=1,b=2` as the kubelet reads it."""
    return dict(one.split(between, 1) for one in text.split(",")) if text else {}


def run_bash(script: str, folder: Path) -> list[str]:
    """Run a script in a real bash in which bootstrap.sh prints its arguments, and nothing else can
    be run; return the arguments."""
    path = folder / "part.sh"
    stub = "function /etc/eks/bootstrap.sh { printf '%s\\0' \"$@\"; }\n"
    assert script.startswith("#!/bin/bash\n")
    path.write_bytes((stub + script).encode())
    checked = subprocess.run(["/bin/bash", "-n", path], capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
    run = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", path],
        capture_output=True,
        check=False,
        env={"PATH": "/nonexistent"},
        cwd=folder,
        timeout=20,
    )
    assert (run.returncode, run.stderr) == (0, b"")
    assert sorted(one.name for one in folder.iterdir()) == ["part.sh"]
    return run.stdout.decode().split("\0")[:-1]


def options(arguments: list[str]) -> tuple[str, dict[str, str]]:
    """The cluster's name and the options of bootstrap.sh, as it reads them: always a pair."""
    name, *rest = arguments
    assert len(rest) % 2 == 0
    return name, dict(zip(rest[::2], rest[1::2], strict=True))


_QUOTES = "'\u2018\u2019\u201a\u201b"
"""What PowerShell takes for a single quote."""


def powershell_tokens(line: str) -> list[str]:
    """The words of one PowerShell command that has bare words, variables and literal strings only;
    anything else that means something to PowerShell fails."""
    tokens: list[str] = []
    at = 0
    while at < len(line):
        if line[at] == " ":
            at += 1
            continue
        if line[at] == "'":
            text, at = _literal(line, at + 1)
        else:
            word = re.match(r"&|\$[A-Za-z]+|-[A-Za-z0-9]+", line[at:])
            assert word, f"PowerShell would not take this as a word: {line[at:]!r}"
            text, at = word[0], at + len(word[0])
        tokens.append(text)
        assert at == len(line) or line[at] == " ", f"no space before {line[at:]!r}"
    return tokens


def _literal(line: str, at: int) -> tuple[str, int]:
    text = ""
    while at < len(line):
        if line[at] in _QUOTES:
            if line[at + 1 : at + 2] and line[at + 1] in _QUOTES:
                text, at = text + line[at], at + 2
                continue
            return text, at + 1
        assert line[at] not in "\r\n"
        text, at = text + line[at], at + 1
    raise AssertionError("the literal does not end")
