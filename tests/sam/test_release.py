"""A release: two builds of it have the same bytes, and it is deployed without a clone."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import smoke_scenario

from tests.end_to_end.environment import Environment
from tools.bundle import ROOT, bundle, coded_resources

pytestmark = pytest.mark.sam


@pytest.fixture(scope="module")
def release(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release."""
    return bundle(build, tmp_path_factory.mktemp("release"))


def rebuilt(build: Path, folder: Path) -> Path:
    """A build in another folder: the same files in another order, with later times, and with
    bytecode that is compiled again by the layer's recipe."""
    made = folder / "elsewhere"
    for name in coded_resources((ROOT / "template.yaml").read_text()):
        for path in sorted((build / name).rglob("*"), reverse=True):
            if path.is_file() and "__pycache__" not in path.parts:
                target = made / name / path.relative_to(build / name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                target.chmod(path.stat().st_mode)
    recipe = (ROOT / "layers" / "leeway" / "Makefile").read_text().splitlines()
    (compiling,) = [line.strip() for line in recipe if "-m compileall" in line]
    command = compiling.replace("$(PYTHON)", sys.executable)
    layer = made / "LeewayLayer" / "python"
    subprocess.run(["/bin/sh", "-ec", command.replace("$(TARGET)", str(layer))], check=True)
    return made


def test_two_builds_have_the_same_bytes(build: Path, release: Path, tmp_path: Path) -> None:
    again = bundle(rebuilt(build, tmp_path), tmp_path / "dist")
    names = sorted(str(path.relative_to(release)) for path in release.rglob("*"))
    assert sorted(str(path.relative_to(again)) for path in again.rglob("*")) == names
    for name in names:
        if (release / name).is_file():
            assert (again / name).read_bytes() == (release / name).read_bytes(), name
    tars = [one.with_name(f"{one.name}.tar").read_bytes() for one in (release, again)]
    assert tars[0] == tars[1]


def test_the_checksums_are_those_of_the_files(release: Path) -> None:
    lines = (release / "SHA256SUMS").read_text().splitlines()
    stated = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = [path for path in release.rglob("*") if path.is_file() and path.name != "SHA256SUMS"]
    assert stated == {
        path.relative_to(release).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    assert len([name for name in stated if name.endswith(".whl")]) == 1


def test_what_every_cluster_gets_has_no_kinds_of_karpenter(release: Path) -> None:
    """Karpenter brings CRDs of the same names, and two owners would replace each other's."""
    cluster = (release / "cluster.yaml").read_text()
    assert "kind: ClusterRole\n" in cluster
    assert "CustomResourceDefinition" not in cluster
    assert "name: nodepools.karpenter.sh\n" in (release / "crds.yaml").read_text()


def test_no_archive_names_a_folder_of_the_build(build: Path, release: Path) -> None:
    """Bytecode has the path of its source: that of Lambda, for tracebacks."""
    for file in (release / "archives").glob("*.zip"):
        with ZipFile(file) as archive:
            for name in archive.namelist():
                assert str(build).encode() not in archive.read(name), name


def test_the_release_is_deployed_and_retires_a_node(release: Path, tmp_path: Path) -> None:
    """The functions run from the archives that the template names."""
    template = (release / "template.yaml").read_text()
    placed = re.findall(
        r'Uri: \{Bucket: .*, Key: !Sub "\$\{ArtifactPrefix\}(\S+\.zip)"\}', template
    )
    assert len(placed) == len([*(release / "archives").iterdir()])
    for name in placed:
        with ZipFile(release / "archives" / name) as archive:
            archive.extractall(tmp_path / "code" / name.partition("-")[0])
    with Sandbox.start(
        smoke_scenario(),
        state_dir=tmp_path / "state",
        template=release / "template.yaml",
        build=tmp_path / "code",
        parameters={"ArtifactBucket": "archives"},
    ) as sandbox:
        env = Environment(sandbox)
        ((instance, _),) = env.unused_nodes(1).items()
        seen = env.interrupt([instance])
        (outcome,) = seen.outcomes(instance)
        assert outcome["result"] == "drained"
        imported = {one.code for one in sandbox.deployed.functions} if sandbox.deployed else set()
        assert all(path.is_relative_to(tmp_path / "code") for path in imported)
