"""`tools/lambda-image` pulls only by digest and installs only packages with hashes."""

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from leeway.headroom.pause_pods import IMAGE

ROOT = Path(__file__).parents[1]
ARCHITECTURE = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
DIGEST = f"sha256:{'a1' * 32}"
REPOSITORY = "public.ecr.aws/lambda/python"

# An engine with only the image that $THERE describes. It logs its commands.
DOCKER = """#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
  "image inspect --format {{range"*) echo "$RECORDED" ;;
  "image inspect"*) [ -n "$THERE" ] && echo "$THERE" ;;
  "pull"*) exit "${PULL:-0}" ;;
esac
"""


class Checkout:
    """A checkout with an engine that the test configures."""

    def __init__(self, folder: Path) -> None:
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name in ("lambda-image", "lambda-image.digests"):
            shutil.copy(ROOT / "tools" / name, self.tools / name)
        engine = folder / "bin"
        engine.mkdir()
        (engine / "docker").write_text(DOCKER)
        (engine / "docker").chmod(0o755)
        # An `id` that reports a normal user, so that no test builds an image.
        (engine / "id").write_text("#!/bin/sh\necho 1000\n")
        (engine / "id").chmod(0o755)
        self.log = folder / "log"
        self._path = f"{engine}{os.pathsep}{os.environ['PATH']}"

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.log.write_text("")
        return subprocess.run(
            [self.tools / "lambda-image", *arguments],
            env={**os.environ, "PATH": self._path, "LOG": str(self.log), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def commands(self, verb: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith(verb)]

    def record(self, digest: str) -> None:
        (self.tools / "lambda-image.digests").write_text(f"# Digests.\n{ARCHITECTURE} {digest}\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_image_is_pulled_by_its_recorded_digest(checkout: Checkout) -> None:
    checkout.record(DIGEST)
    assert checkout.run().returncode == 0
    assert checkout.commands("pull") == [f"pull --quiet {REPOSITORY}@{DIGEST}"]
    assert checkout.commands("tag") == [
        f"tag {REPOSITORY}@{DIGEST} {REPOSITORY}:3.13-{ARCHITECTURE}"
    ]


def test_the_environment_variable_overrides_the_digest(checkout: Checkout) -> None:
    assert checkout.run(LAMBDA_IMAGE_DIGEST=DIGEST).returncode == 0
    assert checkout.commands("pull") == [f"pull --quiet {REPOSITORY}@{DIGEST}"]


def test_without_a_digest_nothing_is_pulled(checkout: Checkout) -> None:
    (checkout.tools / "lambda-image.digests").write_text("# Digests.\n")
    done = checkout.run()
    assert done.returncode == 3
    assert "no digest of" in done.stdout
    assert checkout.commands("pull") == []


@pytest.mark.parametrize("digest", ["latest", "sha256:12", f"{DIGEST} ", f"sha512:{'a' * 64}"])
def test_an_invalid_digest_is_refused(checkout: Checkout, digest: str) -> None:
    assert checkout.run(LAMBDA_IMAGE_DIGEST=digest).returncode == 2
    assert checkout.commands("pull") == []


@pytest.mark.parametrize(
    ("there", "pulls"),
    [
        (f" [{REPOSITORY}@{DIGEST}]", 0),
        (f" [{REPOSITORY}@sha256:{'b2' * 32}]", 1),
        ("yes []", 1),
    ],
)
def test_a_present_image_is_used_only_if_it_has_the_digest(
    checkout: Checkout, there: str, pulls: int
) -> None:
    checkout.record(DIGEST)
    assert checkout.run(THERE=there).returncode == 0
    assert len(checkout.commands("pull")) == pulls


def test_a_locally_built_image_is_used_if_the_pull_fails(checkout: Checkout) -> None:
    checkout.record(DIGEST)
    assert checkout.run(THERE="yes []", PULL="1").returncode == 0
    assert checkout.run(THERE=" [other]", PULL="1").returncode == 3


def test_a_digest_is_recorded_once_for_each_architecture(checkout: Checkout) -> None:
    checkout.record(f"sha256:{'b2' * 32}")
    recorded = f"{REPOSITORY}@{DIGEST}"
    assert checkout.run("record", RECORDED=recorded).stdout == f"{ARCHITECTURE} {DIGEST}\n"
    lines = (checkout.tools / "lambda-image.digests").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [f"{ARCHITECTURE} {DIGEST}"]


def test_all_packages_of_the_image_have_hashes() -> None:
    script = (ROOT / "tools" / "lambda-image").read_text()
    assert "--require-hashes --requirement requirements/lambda-image.txt" in script
    assert "--force-check-gpg" in script
    pins = (ROOT / "requirements" / "lambda-image.txt").read_text()
    blocks = re.findall(
        r"^([a-z0-9-]+)==\S+ \\\n((?:    --hash=sha256:\S+(?: \\)?\n)+)", pins, re.M
    )
    named = re.findall(r"^([a-z0-9-]+)==", pins, re.M)
    assert [name for name, _ in blocks] == named
    assert "awslambdaric" in named


def test_the_pause_image_has_a_digest() -> None:
    assert re.fullmatch(r"registry\.k8s\.io/pause:[0-9.]+@sha256:[0-9a-f]{64}", IMAGE)
    schema = json.loads((ROOT / "docs/schemas/leeway.sh/headroom_v1.json").read_text())
    assert IMAGE in json.dumps(schema)
