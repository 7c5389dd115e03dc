"""Validation of manifests: each error has its place and what was expected."""

import json

import pytest
from leeway.manifests.reading import Reading, read_manifests, read_stored

CLUSTER = """\
apiVersion: leeway.sh/v1
kind: Cluster
metadata:
  name: prod
"""


def read(text: str) -> Reading:
    return read_manifests(text, "prod.yaml")


def problems(text: str) -> list[str]:
    return [str(problem) for problem in read(text).problems]


def test_a_manifest_is_stored_as_written_without_fields_of_a_server() -> None:
    found = read(
        CLUSTER
        + "  resourceVersion: '7'\n  labels: {team: a}\n"
        + "spec: {dryRun: true}\nstatus: {}\n"
    )
    assert (found.problems, found.warnings) == ((), ())
    (written,) = found.written
    assert written.body == (
        '{"apiVersion":"leeway.sh/v1","kind":"Cluster",'
        '"metadata":{"name":"prod","labels":{"team":"a"}},"spec":{"dryRun":true}}'
    )
    assert written.title == "cluster.leeway.sh/prod"
    assert written.manifest.metadata.resource_version == "7"
    assert read_stored(written.body, "prod").written[0].manifest.metadata.name == "prod"


def test_the_version_of_an_object_that_kubectl_printed_is_dropped() -> None:
    """It is of the API server: `kubectl get nodepools -o yaml` applies without a conflict."""
    (written,) = read(CLUSTER + "  uid: 9f2c\n  resourceVersion: '7'\n").written
    assert written.manifest.metadata.resource_version is None
    assert "resourceVersion" not in written.body


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "prod.yaml:1: expected a manifest, got a list"),
        ("kind: Cluster\n", "prod.yaml:1: apiVersion: expected text; this field is required"),
        (
            CLUSTER.replace("Cluster", "Clutser"),
            "prod.yaml:2: kind: unknown kind Clutser of leeway.sh/v1; did you mean Cluster?",
        ),
        (
            "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\n",
            "prod.yaml:2: kind: expected manifests; `leeway convert -f` makes them of a Cluster",
        ),
        (
            CLUSTER.replace("v1", "v2"),
            "prod.yaml:1: apiVersion: expected leeway.sh/v1 for a Cluster, got leeway.sh/v2",
        ),
        (CLUSTER.replace("  name: prod\n", "  labels: {}\n"), "metadata.name: is missing"),
        (CLUSTER.replace("prod", "-x"), "prod.yaml:4: metadata.name: expected text that matches "),
        (
            CLUSTER.replace("prod", "7"),
            "prod.yaml:4: metadata.name: expected text, in quotes, got 7",
        ),
        (CLUSTER + "  namespace: x\n", "metadata.namespace: a Cluster has no namespace"),
        (CLUSTER + "  labels: {'a b': c}\n", "expected a label key"),
        (
            CLUSTER + "spec:\n  puased: true\n",
            "prod.yaml:6: spec.puased: unknown field; did you mean paused?",
        ),
        (
            CLUSTER + "spec:\n  paused: 'true'\n",
            'spec.paused: expected true or false, got "true"',
        ),
        (
            CLUSTER + "spec:\n  notices:\n    rebalance: {action: drain}\n",
            "prod.yaml:7: spec.notices.rebalance.action: expected 'ignore', 'cordon' or 'retire'",
        ),
        (
            CLUSTER + "spec:\n  notices:\n    rebalance: {onblocked: wait}\n",
            "spec.notices.rebalance.onblocked: unknown field; did you mean onBlocked?",
        ),
        (
            CLUSTER + "spec: {notices: {spot-interruptions: {}}}\n",
            "unknown field; did you mean spot-interruption?",
        ),
        (
            CLUSTER + "spec: {notices: {rebalance: {deadline: soon}}}\n",
            "deadline: expected a duration such as 90s or 1h30m, got 'soon'",
        ),
        (
            CLUSTER + "spec: {notices: {spot-interruption: {deadline: 3m}}}\n",
            'and at most 1m55s, got "3m"',
        ),
        (CLUSTER + "spec: {takes: [fargate]}\n", "spec.takes[0]: expected 'managed-node-group'"),
        (
            CLUSTER + "spec: {defaults: {subnetSelectorTerms: [{}]}}\n",
            "spec.defaults.subnetSelectorTerms[0]: expected either tags or id in a term",
        ),
    ],
)
def test_an_error_has_its_line_its_field_and_what_was_expected(text: str, said: str) -> None:
    (told,) = problems(text)
    assert said in told


def test_all_errors_of_all_documents_are_reported() -> None:
    text = CLUSTER + "spec: {a: 1, b: 2}\n---\n" + CLUSTER + "spec: {c: 3}\n"
    assert [problem.split(": ")[:2] for problem in problems(text)] == [
        ["prod.yaml:5", "spec.a"],
        ["prod.yaml:5", "spec.b"],
        ["prod.yaml:11", "spec.c"],
    ]


def test_the_items_of_a_list_are_manifests() -> None:
    indented = "".join(f"    {line}\n" for line in CLUSTER.splitlines())
    text = "apiVersion: v1\nkind: List\nmetadata: {}\nitems:\n  -\n" + indented
    (written,) = read(text).written
    assert (written.name, written.line) == ("prod", 6)


def test_a_stored_manifest_is_validated_again() -> None:
    (problem,) = read_stored('{"apiVersion":"leeway.sh/v1","kind":"Cluster"}', "table").problems
    assert str(problem) == "table: metadata: is missing"
    assert "not valid JSON" in str(read_stored("{", "table").problems[0])


def test_a_document_that_is_too_large_is_refused_and_others_are_read() -> None:
    large = CLUSTER + f"  annotations: {{a: {'x' * 1024 * 1024}}}\n---\n"
    found = read(large + CLUSTER)
    assert [str(problem) for problem in found.problems] == [
        "prod.yaml:1: too large: 1,024 KB; the limit is 350 KB"
    ]
    assert [written.name for written in found.written] == ["prod"]


def test_a_list_may_be_larger_than_each_of_its_items() -> None:
    item = {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": "prod", "annotations": {"a": "x" * 300 * 1024}},
    }
    found = read(json.dumps({"apiVersion": "v1", "kind": "List", "items": [item, item]}))
    assert (len(found.written), found.problems) == (2, ())
