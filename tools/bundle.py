"""Makes the files of a release from the output of `sam build`: `python -m tools.bundle`.

Two builds of one commit have the same bytes: files are sorted, and their times and modes are fixed.
"""

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import boto3
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

ROOT = Path(__file__).resolve().parents[1]

_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive: the earliest one that zip can write."""
_TAR_TIME = 315_532_800
"""The same time in epoch seconds."""

_CODE = re.compile(r"^( +(?:CodeUri|ContentUri): )[\w./-]+$")
_RESOURCE = re.compile(r"^  (\w+):$")

_GROUPS = "    ParameterGroups:\n"
_ARCHIVES_GROUP = """\
      - Label: {default: Archives of the release}
        Parameters: [ArtifactBucket, ArtifactPrefix]
"""
_PARAMETERS = "\nParameters:\n"
_ARCHIVES_PARAMETERS = """\
  ArtifactBucket:
    Type: String
    AllowedPattern: ^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$
    ConstraintDescription: the name of an S3 bucket
    Description: S3 bucket in the region of the stack that has the archives of this release
  ArtifactPrefix:
    Type: String
    Default: ""
    AllowedPattern: ^([A-Za-z0-9_.-]{1,100}/){0,8}$
    ConstraintDescription: folders, each with a slash behind it, or empty
    Description: Folder of the archives in ArtifactBucket, such as leeway/; empty for its top
"""


_LONGEST_PREFIX = 36
"""With it, `-provision-nodes-stays-awake` is a name of 64 characters: the most that functions and
schedules may have."""
_NAME_PREFIX = {
    "Type": "String",
    "Default": "leeway",
    "AllowedPattern": f"^[A-Za-z][A-Za-z0-9-]{{0,{_LONGEST_PREFIX - 1}}}$",
    "ConstraintDescription": "a letter, and up to 35 letters, digits and hyphens",
    "Description": "What names begin with, and the option --stack of the command line",
}
_VALUE = "value-of-"


def bundle(build: Path, out: Path) -> Path:
    """Write the folder `leeway-VERSION` and its tar into `out`. Returns the folder. `build` is
    `.aws-sam/build`.

    Raises:
        FileNotFoundError: nothing is built.
    """
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    folder = out / f"leeway-{version}"
    (folder / "archives").mkdir(parents=True)
    source = (ROOT / "template.yaml").read_text()
    archives = {
        name: _archive(build / name, name, folder / "archives") for name in coded_resources(source)
    }
    template = packaged(source, archives)
    (folder / "template.yaml").write_text(template)
    (folder / "stackset.json").write_text(for_stack_sets(template))
    for name, objects in (("cluster.yaml", "rbac"), ("crds.yaml", "crds")):
        (folder / name).write_text(joined(ROOT / objects))
    _wheel(folder)
    _write_checksums(folder)
    _tar(folder, out / f"{folder.name}.tar")
    return folder


def coded_resources(template: str) -> tuple[str, ...]:
    """Return the logical ids of the functions and layers of a template."""
    return tuple(name for name, match in _code_lines(template) if match)


def packaged(template: str, archives: Mapping[str, str]) -> str:
    """Return the template with its code in S3. `archives` has the file name of each resource's
    archive: a new name is new code for SAM, which publishes a version then."""
    lines = []
    for line, (name, match) in zip(template.splitlines(), _code_lines(template), strict=True):
        if match:
            key = f'!Sub "${{ArtifactPrefix}}{archives[name]}"'
            line = f"{match[1]}{{Bucket: !Ref ArtifactBucket, Key: {key}}}"
        lines.append(line)
    text = "\n".join(lines) + "\n"
    for place, added in ((_GROUPS, _ARCHIVES_GROUP), (_PARAMETERS, _ARCHIVES_PARAMETERS)):
        if text.count(place) != 1:
            raise ValueError(f"expected one {place.strip()} in template.yaml")
        text = text.replace(place, place + added)
    return text


def for_stack_sets(template: str) -> str:
    """Return the packaged template for StackSets, as JSON: without SAM's transform, because
    StackSets with service-managed permissions refuse macros, and with names that begin with the
    parameter NamePrefix: a stack of a StackSet has a name with a UUID, which is too long for them.
    Source: CloudFormation API reference, CreateStackSet, Capabilities."""
    # The translator asks for a region only to find plugins that this template does not use.
    translator = Translator(None, Parser(), [], boto3.Session(region_name="us-east-1"))
    # It puts the values of parameters into functions with versions: here, texts that are replaced.
    source = yaml_parse(template)
    own = source["Parameters"].keys() - {"CodeSha256"}  # the hash of a version, if it is given
    values = {name: f"{_VALUE}{name}." for name in own}
    try:
        found = translator.translate(source, values, get_managed_policy_map=dict)
    finally:
        # Without this call the translator warns about unpublished metrics at exit.
        translator.metrics.publish()
    resources = found["Resources"]
    for one in resources.values():
        # SAM gives a version another logical id when a parameter of its function changes. Here its
        # description changes, which has the values of these: that replaces a version, too.
        if one["Type"] == "AWS::Lambda::Version":
            function = resources[one["Properties"]["FunctionName"]["Ref"]]
            one["Properties"]["Description"] = function["Properties"]["Description"]
            one["UpdateReplacePolicy"] = "Retain"
    found["Parameters"]["NamePrefix"] = _NAME_PREFIX
    del found["Parameters"]["CodeSha256"]  # only SAM reads it
    interface = found["Metadata"]["AWS::CloudFormation::Interface"]
    for group in interface["ParameterGroups"]:
        group["Parameters"] = [one for one in group["Parameters"] if one != "CodeSha256"]
    interface["ParameterGroups"][0]["Parameters"].insert(0, "NamePrefix")
    text = json.dumps(found, indent=1)
    text = re.sub(rf'"{_VALUE}(\w+)\."', r'{"Ref": "\1"}', text)
    text = re.sub(rf"{_VALUE}(\w+)\.", r"${\1}", text)
    text = text.replace("${AWS::StackName}", "${NamePrefix}")
    return text.replace('"Ref": "AWS::StackName"', '"Ref": "NamePrefix"') + "\n"


def _code_lines(template: str) -> Iterable[tuple[str, re.Match[str] | None]]:
    """Yield for each line the resource that it is in, and its match if it has the code's place."""
    name = ""
    for line in template.splitlines():
        if found := _RESOURCE.match(line):
            name = found[1]
        yield name, _CODE.match(line)


def joined(folder: Path) -> str:
    """Return the objects of a folder as one text. What every cluster gets is in rbac/. The CRDs are
    apart: a cluster with Karpenter has some of them, which are Karpenter's."""
    files = sorted(folder.glob("*.yaml"))
    return "---\n".join(file.read_text().removeprefix("---\n") for file in files)


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder in the order of their paths, without the bytecode that a run of
    a handler has left. That of a layer belongs to it."""
    found = sorted(
        (path for path in folder.rglob("*") if path.is_file()),
        key=lambda path: path.relative_to(folder).as_posix(),
    )
    if not found:
        raise FileNotFoundError(f"{folder} has no files: run `make build`")
    return [path for path in found if path.parent != folder / "__pycache__"]


def _archive(folder: Path, name: str, target: Path) -> str:
    """Write a zip whose name has the hash of its content. Returns the name."""
    content = io.BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as archive:
        for path in _files(folder):
            member = ZipInfo(path.relative_to(folder).as_posix(), _EARLIEST)
            member.create_system = 3  # Unix: Lambda reads the modes
            member.external_attr = (0o100755 if _is_executable(path) else 0o100644) << 16
            member.compress_type = ZIP_DEFLATED
            archive.writestr(member, path.read_bytes())
    made = content.getvalue()
    named = f"{name}-{hashlib.sha256(made).hexdigest()[:16]}.zip"
    (target / named).write_bytes(made)
    return named


def _is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o100)


def _wheel(folder: Path) -> None:
    """Build the wheel. Hatchling sorts its files and fixes their times."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def _write_checksums(folder: Path) -> None:
    """Write the checksums of all files in the form of sha256sum."""
    lines = []
    for path in _files(folder):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{digest}  {path.relative_to(folder).as_posix()}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))


def _tar(folder: Path, target: Path) -> None:
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in _files(folder):
            member = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            member.size, member.mode, member.mtime = path.stat().st_size, 0o644, _TAR_TIME
            with path.open("rb") as opened:
                archive.addfile(member, opened)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.bundle", description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / ".aws-sam" / "build")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    try:
        folder = bundle(given.build, given.out)
    except FileExistsError as error:
        sys.exit(f"{error.filename} exists: remove it, or set --out.")
    except FileNotFoundError as error:
        sys.exit(f"{error}.")
    for path in (folder, folder.with_name(f"{folder.name}.tar")):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
