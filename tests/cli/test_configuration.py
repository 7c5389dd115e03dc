"""`leeway apply|get|diff|delete|pause|resume` against the table of a sandbox."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.manifests.configuration import StoredManifests
from leeway.manifests.in_cluster import HOME, MANIFESTS_HELD, Home, ManifestHome
from leeway.policy.rules import ClusterPolicy
from leeway.provisioning.cluster_state import ClusterState
from leeway.selection.offers.survey import compressed
from leeway.wiring.clients import client
from leeway_cli import main
from leeway_cli.explain.asked import find_manifests
from leeway_cli.explain.capacity import read_records
from leeway_cli.selection.sources import sandbox_survey

from tests.aws.stored import TABLE, table_in
from tests.cli.conftest import drop_clients
from tests.sandbox.aws.started import Sandbox

CLUSTER = """\
apiVersion: leeway.sh/v1
kind: Cluster
metadata:
  name: prod
spec:
  notices:
    rebalance: {action: ignore}
"""

ROOM = """\
apiVersion: leeway.sh/v1
kind: Headroom
metadata: {name: office}
spec:
  buffers:
    - {name: web, pod: {requests: {cpu: 1}}, replicas: 1}
"""

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(aws: Sandbox, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `leeway … --cluster prod`: its exit code, stdout and stderr."""

    def run(*arguments: str, cluster: str = "prod") -> tuple[int, str, str]:
        extra = ["--cluster", cluster] if cluster else []
        code = main.run([*arguments, *extra])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a file; its path."""

    def write(content: str | bytes, name: str = "prod.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def got(run: Run, *what: str) -> Any:
    """What `leeway get -o json` prints."""
    code, out, _ = run("get", *what, "-o", "json")
    assert code == 0
    return json.loads(out)


def test_a_manifest_is_created_then_unchanged_then_configured(run: Run, write: Any) -> None:
    file = write(CLUSTER)
    assert run("apply", "-f", file) == (0, "cluster.leeway.sh/prod created\n", "")
    assert run("apply", "-f", file) == (0, "cluster.leeway.sh/prod unchanged\n", "")
    write(CLUSTER + "  dryRun: true\n")
    assert run("apply", "-f", file) == (0, "cluster.leeway.sh/prod configured\n", "")
    assert got(run, "cluster", "prod")["spec"] == {
        "notices": {"rebalance": {"action": "ignore"}},
        "dryRun": True,
    }


def test_the_output_of_get_can_be_applied(run: Run, write: Any) -> None:
    run("apply", "-f", write(CLUSTER))
    code, out, _ = run("get", "clusters", "prod", "-o", "yaml")
    assert code == 0
    assert yaml.safe_load(out)["status"]["problems"] == []
    assert run("apply", "-f", write(out, "got.yaml"))[1] == "cluster.leeway.sh/prod unchanged\n"
    assert run("apply", "-f", write(run("get", "-o", "yaml")[1], "l.yaml"))[0] == 0


NODE_CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: web}
spec: {amiFamily: Bottlerocket, userData: USER_DATA}
"""


def test_apply_names_the_user_data_that_nodes_do_not_get(run: Run, write: Any) -> None:
    assert run("apply", "-f", write(NODE_CLASS.replace("USER_DATA", "''")))[2] == ""
    own = '"[settings.kubernetes]\\nno-such = 1"'
    code, out, err = run("apply", "-f", write(NODE_CLASS.replace("USER_DATA", own)))
    assert (code, out) == (0, "ec2nodeclass.karpenter.k8s.aws/web configured\n")
    assert "prod.yaml:1: ec2nodeclass.karpenter.k8s.aws/web: spec.userData: SettingLeftOut: " in err
    assert "settings.kubernetes.no-such" in err


def test_apply_refuses_user_data_with_which_no_node_can_be_launched(run: Run, write: Any) -> None:
    code, out, err = run("apply", "-f", write(NODE_CLASS.replace("USER_DATA", "'[settings'")))
    assert (code, out) == (2, "")
    assert "spec.userData: expected settings in TOML" in err


def test_a_dry_run_and_a_diff_change_nothing(run: Run, write: Any) -> None:
    file = write(CLUSTER)
    code, out, _ = run("apply", "-f", file, "--dry-run")
    assert (code, out) == (0, "cluster.leeway.sh/prod created (dry run)\n")
    code, out, _ = run("diff", "-f", file)
    assert code == 1
    assert "+kind: Cluster\n" in out
    assert got(run)["items"] == []


def test_a_diff_shows_the_lines_that_applying_would_change(run: Run, write: Any) -> None:
    file = write(CLUSTER)
    run("apply", "-f", file)
    assert run("diff", "-f", file) == (0, "", "")
    write(CLUSTER.replace("ignore", "cordon"))
    code, out, _ = run("diff", "-f", file)
    assert code == 1
    changed = [line for line in out.splitlines() if line[:1] in "+-" and line[:3] not in "+++---"]
    assert changed == ["-      action: ignore", "+      action: cordon"]


def test_a_failed_diff_has_another_exit_code_than_a_difference(
    run: Run, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEEWAY_TABLE", "no-such-table")
    assert run("diff", "-f", write(CLUSTER))[0] == 3


def test_folders_several_files_and_stdin_are_read(
    run: Run, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(CLUSTER, "folder/a.yaml")
    write("not a manifest", "folder/README.md")
    assert run("apply", "-f", str(tmp_path / "folder"))[1] == "cluster.leeway.sh/prod created\n"
    stdin = SimpleNamespace(buffer=io.BytesIO(CLUSTER.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run("apply", "-f", "-")[1] == "cluster.leeway.sh/prod unchanged\n"


def test_a_file_that_is_given_twice_is_read_once(run: Run, write: Any, tmp_path: Path) -> None:
    file = write(CLUSTER, "folder/a.yaml")
    code, out, _ = run("apply", "-f", file, "-f", str(tmp_path / "folder"), "-f", file)
    assert (code, out) == (0, "cluster.leeway.sh/prod created\n")


def test_an_invalid_cluster_name_is_refused(run: Run) -> None:
    for command in (("get", "--cluster"), ("pause",)):
        for name in ("a#b", "a b", "x" * 101):
            code, out, err = run(*command, name, cluster="")
            assert (code, out) == (2, ""), (command, name)
            assert "expected the name of a cluster" in err


def test_manifests_are_deleted_by_file_or_by_name(run: Run, write: Any) -> None:
    file = write(CLUSTER)
    run("apply", "-f", file)
    assert run("delete", "cluster", "prod", "--dry-run")[1].endswith("deleted (dry run)\n")
    assert run("delete", "cluster", "prod") == (0, "cluster.leeway.sh/prod deleted\n", "")
    code, _, err = run("delete", "-f", file)
    assert (code, err) == (
        1,
        "leeway: Cluster prod has no manifest cluster.leeway.sh/prod.\n",
    )
    assert run("delete", "-f", file, "--ignore-not-found") == (0, "", "")


def test_a_deleted_pool_is_said_to_give_its_nodes_back_and_explain_knows_it(
    run: Run, write: Any
) -> None:
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "web"},
        "spec": {
            "limits": {"cpu": 8},
            "template": {
                "spec": {
                    "nodeClassRef": {
                        "group": "karpenter.k8s.aws",
                        "kind": "EC2NodeClass",
                        "name": "web",
                    },
                    "requirements": [],
                }
            },
        },
    }
    assert run("apply", "-f", write(yaml.safe_dump(pool)))[0] == 0
    assert run("delete", "nodepool", "web", "--dry-run")[2] == ""
    code, _, err = run("delete", "nodepool", "web")
    assert code == 0
    assert "gives the nodes of web back in 15 minutes" in err
    known = read_records("prod", "leeway", ClusterPolicy(), ClusterState(datetime.now(UTC)))
    assert set(known.deleted) == {"web"}


def test_printed_names_and_several_kinds_are_accepted(run: Run, write: Any) -> None:
    run("apply", "-f", write(CLUSTER), "-f", write(ROOM, "room.yaml"))
    assert got(run, "cluster.leeway.sh/prod")["metadata"]["name"] == "prod"
    assert [one["kind"] for one in got(run, "clusters,headroom")["items"]] == [
        "Cluster",
        "Headroom",
    ]
    both = got(run, "cluster/prod", "headroom/office")["items"]
    assert [one["metadata"]["name"] for one in both] == ["prod", "office"]
    assert run("get", "cluster/prod", "office")[0] == 2
    assert run("get", "cluster/")[0] == 2
    assert run("get", "headroom/shop")[0] == 1
    code, out, _ = run("delete", "headroom.leeway.sh/office")
    assert (code, out) == (0, "headroom.leeway.sh/office deleted\n")
    assert [one["kind"] for one in got(run)["items"]] == ["Cluster"]


def test_a_manifest_that_another_writer_changed_is_not_overwritten(run: Run, write: Any) -> None:
    run("apply", "-f", write(CLUSTER))
    mine = run("get", "cluster", "prod", "-o", "yaml")[1]
    run("apply", "-f", write(CLUSTER + "  paused: true\n"))
    code, out, err = run("apply", "-f", write(mine.replace("ignore", "retire"), "mine.yaml"))
    assert (code, out) == (1, "")
    assert "cluster.leeway.sh/prod: conflict: resourceVersion " in err
    assert got(run, "cluster", "prod")["spec"]["paused"] is True
    run("delete", "cluster", "prod")
    assert "was deleted" in run("apply", "-f", write(mine))[2]
    # A manifest that was created again is another one than the deleted one.
    run("apply", "-f", write(CLUSTER + "  paused: true\n"))
    assert run("apply", "-f", write(mine.replace("ignore", "retire"), "mine.yaml"))[0] == 1


def test_a_concurrent_change_by_another_writer_is_a_conflict(
    run: Run, write: Any, monkeypatch: pytest.MonkeyPatch, aws: Sandbox
) -> None:
    from leeway_cli.manifests import changes

    run("apply", "-f", write(CLUSTER))
    file = write(CLUSTER.replace("ignore", "cordon"))
    read = changes.stored_manifests

    def read_before_another_writes(*arguments: Any) -> Any:
        found = read(*arguments)
        monkeypatch.setattr(changes, "stored_manifests", read)
        assert main.run(["pause", "prod"]) == 0
        return found

    monkeypatch.setattr(changes, "stored_manifests", read_before_another_writes)
    code, _, err = run("apply", "-f", file)
    assert code == 1
    assert "conflict: another writer changed it at the same time" in err
    assert got(run, "cluster", "prod")["spec"]["paused"] is True


STATIC = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fixed}
spec:
  replicas: 2
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""


def test_scale_changes_the_number_of_nodes_of_a_static_pool(run: Run, write: Any) -> None:
    run("apply", "-f", write(STATIC))
    changed = "nodepool.karpenter.sh/fixed configured\n"
    assert run("scale", "nodepool", "fixed", "--replicas", "5") == (0, changed, "")
    assert run("scale", "nodepool/fixed", "--replicas=5")[1].endswith("unchanged\n")
    assert got(run, "nodepool", "fixed")["spec"]["replicas"] == 5
    assert run("get", "nodepools")[1].splitlines()[0].split()[:4] == [
        "NAME",
        "NODECLASS",
        "WEIGHT",
        "REPLICAS",
    ]
    assert run("scale", "nodepool", "fixed", "--replicas", "0")[0] == 0


def test_scale_refuses_what_has_no_fixed_number_of_nodes(run: Run, write: Any) -> None:
    run("apply", "-f", write(STATIC.replace("  replicas: 2\n", "")))
    code, out, err = run("scale", "nodepool", "fixed", "--replicas", "3")
    assert (code, out) == (1, "")
    assert "the pool is not static" in err
    assert "nodepool other: not found" in run("scale", "nodepool", "other", "--replicas", "3")[2]
    assert run("scale", "nodepool", "fixed", "--replicas", "-1")[0] == 2
    code, _, err = run("scale", "headroom", "fixed", "--replicas", "1")
    assert code == 2
    assert "KIND: expected nodepool NAME" in err
    assert run("scale", "nodepools", "--replicas", "1")[0] == 2


def test_a_pool_is_not_switched_between_static_and_dynamic(run: Run, write: Any) -> None:
    static, dynamic = STATIC, STATIC.replace("  replicas: 2\n", "")
    for first, then in ((static, dynamic), (dynamic, static)):
        assert run("apply", "-f", write(first))[0] == 0
        code, out, err = run("apply", "-f", write(then))
        assert (code, out) == (1, "")
        assert "spec.replicas is neither added nor removed" in err
        run("delete", "nodepool", "fixed")


def test_pause_and_resume_change_only_one_field(run: Run, write: Any, aws: Sandbox) -> None:
    assert run("pause", "prod", cluster="") == (0, "cluster.leeway.sh/prod created\n", "")
    assert run("pause", "prod", cluster="")[1] == "cluster.leeway.sh/prod unchanged\n"
    assert run("get", "cluster", "prod")[1].splitlines()[1].split()[:3] == [
        "cluster.leeway.sh/prod",
        "true",
        "false",
    ]
    run("apply", "-f", write(CLUSTER))
    put_body(aws, got(run, "cluster", "prod")["spec"] | {"burst": 3})
    assert run("pause", "prod", cluster="")[0] == 0
    spec = got(run, "cluster", "prod")["spec"]
    assert (spec["paused"], spec["burst"]) == (True, 3)
    run("resume", "prod", cluster="")
    assert got(run, "cluster", "prod")["spec"] == {
        "notices": {"rebalance": {"action": "ignore"}},
        "burst": 3,
    }


def test_manifests_in_the_api_server_are_changed_there(run: Run, write: Any, aws: Sandbox) -> None:
    run("apply", "-f", write(CLUSTER))
    run("apply", "-f", write(STATIC))
    table = table_in(aws)
    manifests = StoredManifests(table)
    (pool,) = manifests.of("prod", "nodepool.karpenter.sh")
    copy = replace(pool, in_cluster=True, version=pool.version + 1)
    manifests.write("prod", copy, pool.version)
    table.put(HOME, ManifestHome("prod", 1, Home.CLUSTER))
    said = "the manifests of cluster prod are in its API server: use kubectl there"
    for command in (
        ("apply", "-f", write(STATIC)),
        ("apply", "-f", write(STATIC), "--dry-run"),
        ("delete", "nodepool", "fixed"),
        ("scale", "nodepool", "fixed", "--replicas", "3"),
    ):
        code, out, err = run(*command)
        assert (code, out) == (1, "")
        assert said in err
    assert run("pause", "prod", cluster="")[0] == 0, "the Cluster manifest is in the table"
    held = MANIFESTS_HELD(what="All", cluster="prod", first="nodepool/fixed", count=1)
    table.put(HOME, ManifestHome("prod", 2, Home.CLUSTER, held))
    assert run("delete", "nodepool", "fixed")[0] == 0
    assert manifests.of("prod", "nodepool.karpenter.sh") == ()


def put_body(aws: Sandbox, spec: Any) -> None:
    """Store a manifest as a newer version of Leeway could write it."""
    document = {"apiVersion": "leeway.sh/v1", "kind": "Cluster", "metadata": {"name": "prod"}}
    manifests = StoredManifests(table_in(aws))
    (stored,) = manifests.of("prod", "cluster.leeway.sh")
    body = json.dumps(document | {"spec": spec})
    newer = replace(stored, body=body, written_by="9.0.0", version=stored.version + 1)
    manifests.write("prod", newer, stored.version)


def test_a_manifest_of_a_newer_version_is_shown_with_its_unknown_fields(
    run: Run, write: Any, aws: Sandbox
) -> None:
    run("apply", "-f", write(CLUSTER))
    put_body(aws, {"burst": 3})
    table = run("get")[1]
    assert "cluster.leeway.sh/prod: spec.burst: unknown field" in table
    status = got(run, "cluster", "prod")["status"]
    assert status["writtenBy"] == "leeway 9.0.0"
    assert status["problems"]


def test_json_output_is_one_document(run: Run, write: Any) -> None:
    code, out, err = run("apply", "-f", write(CLUSTER), "-o", "json")
    assert (code, err) == (0, "")
    (shown,) = json.loads(out)["manifests"]
    assert (shown["manifest"], shown["result"]) == ("cluster.leeway.sh/prod", "created")
    assert int(shown["resourceVersion"]) > 1
    assert json.loads(run("pause", "prod", "-o", "json", cluster="")[1])["cluster"] == "prod"


def test_json_output_of_a_failed_change_has_the_results_and_the_error(run: Run, write: Any) -> None:
    run("apply", "-f", write(CLUSTER))
    changed = CLUSTER.replace("ignore", "cordon")
    file = write(changed.replace("name: prod", "name: prod\n  resourceVersion: '1'"))
    code, out, _ = run("apply", "-f", file, "-o", "json")
    document = json.loads(out)
    assert code == 1
    assert document["manifests"][0]["result"] == "conflict"
    assert ": conflict: " in document["error"]["message"]
    code, out, _ = run("delete", "cluster", "prod", "qa", "-o", "json")
    document = json.loads(out)
    assert code == 1
    assert document["manifests"][0]["result"] == "deleted"
    assert "Cluster prod has no manifest" in document["error"]["message"]


POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: web, annotations: {kept: "${ANYTHING}"}}
spec:
  limits: {cpu: 10}
  template:
    metadata: {labels: {team: web}}
    spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: web}}
"""


def test_a_pool_whose_node_class_has_no_manifest_is_a_warning(run: Run, write: Any) -> None:
    missing = "warning: pool web names the EC2NodeClass web, which has no manifest"
    assert missing in run("apply", "-f", write(POOL))[2]
    both = POOL + "---\n" + NODE_CLASS.replace("USER_DATA", "''")
    assert run("apply", "-f", write(both))[2] == ""
    assert run("apply", "-f", write(POOL))[2] == "", "its node class is stored"


@pytest.mark.parametrize(
    ("content", "printed"),
    [
        (CLUSTER.replace("prod", "dev"), "prod.yaml:1: metadata.name: expected prod"),
        (CLUSTER + "---\n" + CLUSTER, "prod.yaml:9: cluster.leeway.sh/prod is already defined at"),
        (b"a: \xff\xfe\n", "prod.yaml:1: expected text in UTF-8"),
        ("", "prod.yaml: expected at least one manifest, found none"),
        (
            NODE_CLASS.replace("amiFamily", 'role: "nodes-${CLUSTER_NAME}", amiFamily'),
            "/web: spec.role: expected a value, got ${CLUSTER_NAME}. Replace it first",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    run: Run, write: Any, content: str | bytes, printed: str
) -> None:
    code, out, err = run("apply", "-f", write(content))
    assert (code, out) == (2, "")
    assert printed in err
    assert err.count("\n") == 1
    assert got(run)["items"] == []


def test_every_problem_has_its_own_line(run: Run, write: Any) -> None:
    file = write(CLUSTER + "  a: 1\n  b: 2\n")
    error = json.loads(run("apply", "-f", file, "-o", "json")[1])["error"]
    code, _, err = run("apply", "-f", file)
    assert code == 2
    assert [error["message"], *error["details"]] == err.removeprefix("leeway: ").splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in err.splitlines()[1:]] == [
        "spec.b"
    ]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["apply"], "--filename: expected at least one file"),
        (["apply", "-f", "no-such.yaml"], "no-such.yaml: No such file or directory"),
        (["apply", "-f", "https://example.com/a.yaml"], "expected a file or a folder; for a URL"),
        (["get", "nodes", "x"], "KIND: unknown kind nodes"),
        (["get", "clutser"], "did you mean cluster?"),
        (["delete"], "expected KIND and NAMEs, or --filename"),
        (["delete", "cluster", "x", "-f", "y"], "either KIND [NAME] or --filename"),
    ],
)
def test_an_invalid_command_line_is_one_line(run: Run, arguments: list[str], printed: str) -> None:
    code, _, err = run(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert printed in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("delete", "nodepool", ""),
        ("delete", "nodepool", "fixed", ""),
        ("delete", "", "fixed"),
        ("delete", "", ""),
        ("delete", "-f", ""),
        ("delete", "--filename="),
        ("apply", "-f", ""),
        ("resume", "prod", "--pool", ""),
    ],
)
def test_an_empty_argument_changes_nothing(
    run: Run,
    write: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    """A script passes one where a variable of the shell is not set."""
    paused = CLUSTER + "  paused: true\n"
    run("apply", "-f", write(paused), "-f", write(STATIC, "fixed.yaml"))
    before = got(run)["items"]
    write(POOL, "fixed.yaml")
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments, cluster="" if "resume" in arguments else "prod")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "expected a value after it, got an empty text" in err
    assert got(run)["items"] == before


DENIED = (
    "User: arn:aws:sts::123456789012:assumed-role/dev/me is not authorized to perform:"
    " dynamodb:Query on resource: arn:aws:dynamodb:us-east-1:123456789012:table/leeway because no"
    " identity-based policy allows the dynamodb:Query action"
)


@pytest.mark.parametrize(
    ("fault", "printed"),
    [
        (
            {"error": "AccessDeniedException", "message": DENIED},
            "may not call dynamodb:Query on arn:aws:dynamodb:us-east-1:123456789012:table/leeway.",
        ),
        (
            {"error": "ExpiredTokenException"},
            "AWS rejected the credentials",
        ),
        (
            {"error": "ThrottlingException", "count": 99},
            "AWS throttled Query on table leeway",
        ),
    ],
)
def test_a_refusal_of_aws_is_reported_with_the_action(
    run: Run, aws: Sandbox, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], printed: str
) -> None:
    monkeypatch.setattr("leeway.wiring.clients.DEFAULT_TRIES", 1)
    aws.control("PUT", "faults", {"faults": [{"service": "dynamodb", **fault}]})
    code, out, err = run("get")
    assert (code, out) == (1, "")
    assert printed in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("environment", "printed"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "No AWS credentials",
        ),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": ""}, "No AWS region is set"),
        (
            {"AWS_PROFILE": "nobody"},
            "AWS_PROFILE is invalid: The config profile (nobody)",
        ),
        (
            {"LEEWAY_TABLE": "gone"},
            "AWS found no table gone. Check the region",
        ),
        (
            {"LEEWAY_TABLE": ""},
            "Region us-east-1 has no stack leeway. Check AWS_REGION",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            "AWS did not answer a request for table leeway",
        ),
        (
            {"AWS_ENDPOINT_URL": "nowhere"},
            "AWS_ENDPOINT_URL is invalid: Invalid endpoint: nowhere.",
        ),
    ],
)
def test_an_invalid_aws_environment_is_one_line(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: dict[str, str],
    printed: str,
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name, value in environment.items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name)
    monkeypatch.setattr("leeway.wiring.clients.DEFAULT_TRIES", 1)
    drop_clients()
    code, out, err = run("get")
    assert (code, out) == (1, "")
    assert printed in err
    assert err.count("\n") == 1


def test_the_table_is_found_in_the_stacks_outputs_and_an_unmanaged_cluster_is_a_warning(
    run: Run,
    write: Any,
    create_stack: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("LEEWAY_TABLE")
    create_stack("nodes", ClusterNames="dev, prod")
    assert run("apply", "-f", write(CLUSTER), "--stack", "nodes")[::2] == (0, "")
    other = CLUSTER.replace("prod", "qa")
    code, _, err = run("apply", "-f", write(other), "--stack", "nodes", cluster="qa")
    assert code == 0
    assert err == (
        "warning: Leeway does not manage cluster qa (ClusterNames: dev, prod), and does nothing "
        "there before `leeway adopt qa`\n"
    )
    code, out, err = run("pause", "prd", "--stack", "nodes", cluster="")
    assert (code, out) == (1, "")
    assert err.startswith("leeway: Nothing was changed: Leeway does not manage cluster prd")
    assert err.endswith("`leeway adopt prd`; did you mean prod?\n")
    assert find_manifests((), "prd", "nodes") == []
    assert "did you mean prod?" in capsys.readouterr().err


OVERLAY = """\
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {{name: {name}}}
spec: {{price: "{price}"}}
"""

MISSPELLED = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: web
  annotations: {leeway.sh/expirationn: forceful, leeway.io/on-demand-base: "8"}
  labels: {leeway.sh/expiration: forceful}
spec: {limits: {cpu: 10}}
"""


def test_apply_names_overlays_that_conflict_also_with_stored_ones(run: Run, write: Any) -> None:
    DynamoTable(partial(client, "dynamodb"), TABLE).put(
        SURVEY, compressed(sandbox_survey()), region="us-east-1"
    )
    first = write(MISSPELLED + OVERLAY.format(name="a", price=1))
    assert "OverlayConflict" not in run("apply", "-f", first)[2]
    code, _, err = run("apply", "-f", write(OVERLAY.format(name="b", price=1)), "--dry-run")
    assert code == 0
    assert "OverlayConflict: NodeOverlay a is not applied: NodeOverlay b" in err
    changed = OVERLAY.format(name="b", price=1).replace("spec: {", "spec: {weight: 2, ")
    assert "OverlayConflict" not in run("apply", "-f", write(changed))[2]


def test_apply_warns_of_words_that_look_like_leeways_and_mean_nothing(run: Run, write: Any) -> None:
    err = run("apply", "-f", write(MISSPELLED), "--dry-run")[2]
    assert (
        "knows no annotation leeway.sh/expirationn of a NodePool; did you mean "
        "leeway.sh/expiration?" in err
    )
    assert "leeway.io/on-demand-base of a NodePool; did you mean leeway.sh/on-demand-base?" in err
    assert "no label leeway.sh/expiration of a NodePool; expected leeway.sh/expiration in" in err
