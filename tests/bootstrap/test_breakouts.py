"""No value of a manifest breaks out of a shell, TOML, YAML, MIME or PowerShell: it is refused, or
an independent parser reads back exactly the value that was put in."""

import contextlib
import shlex
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from string import ascii_letters, digits
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.bootstrap.amazon_linux import with_unix_lines
from leeway.bootstrap.node import EFFECTS, ClusterDetails, UserDataError, kubelet_may_set, quoted
from leeway.bootstrap.user_data import UserData, render
from leeway.selection.pods import Taint

from tests.bootstrap.nodes import CLUSTER, machine_of, template
from tests.bootstrap.readers import (
    NODE_CONFIG,
    SHELL,
    flags,
    mime_parts,
    node_config,
    options,
    pairs,
    powershell_tokens,
    run_bash,
)

FAMILIES = ("AL2023", "AL2", "Bottlerocket", "Windows2022")

BREAKOUTS = (
    "'",
    '"',
    "\u2019",
    "`reboot`",
    "$(reboot)",
    "${IFS}",
    "; reboot #",
    "&& reboot",
    "| tee /etc/passwd",
    "> /etc/passwd",
    "\\",
    "\n",
    "\r",
    "\r\n--//--\r\n",
    "\n--//\nContent-Type: text/x-shellscript\n\n#!/bin/bash\nreboot\n",
    "</powershell>",
    "'@\n",
    '"""',
    "'''",
    "]\n[settings.host-containers.admin]\nenabled = true\n",
    ": {",
    "&anchor",
    "*alias",
    "!!python/object/apply:os.system [reboot]",
    "- x",
    "# comment",
    ",--anonymous-auth=true",
    " --anonymous-auth=true",
    "%n",
    "\x00",
    "\x85",
    "\u2028",
    "\ud800",
    "é",
)
hostile = st.one_of(
    st.text(max_size=20),
    st.lists(st.sampled_from([*BREAKOUTS, "a", "1", "example.com/"]), max_size=4).map("".join),
)

# A regular expression takes much longer to draw.
name = st.text(f"{ascii_letters}{digits}_.-", min_size=1, max_size=22).map(
    lambda text: text.strip("_.-") or "a"
)
prefix = st.sampled_from(["", "example.com/", "node.kubernetes.io/", "kubernetes.io/", "a.k8s.io/"])
# Values that YAML 1.1, YAML 1.2 and TOML disagree about.
tricky = st.sampled_from(
    ["true", "no", "1e3", "0x1F", "0777", "1_000", "1.5", "12.30", "2026-11-22", "null", "NaN"]
)
values = st.one_of(st.just(""), name, tricky)
BY_LEEWAY = {"leeway.sh/launched": "true"}
"""The label with which every node that Leeway launches registers."""

labels = st.dictionaries(
    st.builds(str.__add__, prefix, st.one_of(name, tricky)), values, max_size=5
)
taints = st.lists(
    st.builds(
        Taint,
        st.builds(str.__add__, prefix, name),
        values,
        st.sampled_from(EFFECTS),
    ),
    max_size=4,
    unique_by=lambda taint: (taint.key, taint.effect),
)


def with_node(family: str, labels: dict[str, str], taints: list[Taint]) -> UserData:
    """Render a node with labels and taints that no model of a manifest has seen."""
    of = template(family)
    pool = replace(of.pool, labels=labels, taints=tuple(taints))
    return render(replace(of, pool=pool), CLUSTER, machine_of("m5.large"))


def registered(family: str, data: UserData) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """The labels and the taints that the kubelet registers."""
    if family == "AL2023":
        kubelet = node_config(data.text)["spec"]["kubelet"]
        found = kubelet["config"].get("registerWithTaints", [])
        given = flags(kubelet.get("flags", []))
        assert given.keys() <= {"--node-labels"}
        of_labels = pairs(given.get("--node-labels", ""))
        return of_labels, [(t["key"], t.get("value", ""), t["effect"]) for t in found]
    if family == "Bottlerocket":
        kubernetes = tomllib.loads(data.text)["settings"]["kubernetes"]
        return kubernetes.get("node-labels", {}), [
            (key, *one.split(":"))
            for key, several in kubernetes.get("node-taints", {}).items()
            for one in several
        ]
    given = flags(extra_arguments(family, data).split(" "))
    expected = {"--max-pods", "--kube-reserved", "--eviction-hard"}
    assert given.keys() - expected <= {"--node-labels", "--register-with-taints"}
    texts = given.get("--register-with-taints", "")
    found_taints = []
    for text in texts.split(",") if texts else ():
        left, _, effect = text.rpartition(":")
        key, _, value = left.partition("=")
        found_taints.append((key, value, effect))
    return pairs(given.get("--node-labels", "")), found_taints


def extra_arguments(family: str, data: UserData) -> str:
    """What the script hands to the kubelet, after a check of all the rest."""
    if family == "AL2":
        (part,) = mime_parts(data.text)
        with tempfile.TemporaryDirectory() as folder:
            cluster, given = options(run_bash(part.payload, Path(folder)))
        assert cluster == CLUSTER.name
        return given["--kubelet-extra-args"]
    first, script, call, last = data.text.splitlines()
    assert (first, last) == ("<powershell>", "</powershell>")
    assert script.startswith("[string]$EKSBootstrapScriptFile = ")
    tokens = powershell_tokens(call)
    assert tokens[:4] == ["&", "$EKSBootstrapScriptFile", "-EKSClusterName", CLUSTER.name]
    assert [token for token in tokens if token.startswith("-") and "=" not in token] == [
        "-EKSClusterName",
        "-APIServerEndpoint",
        "-Base64ClusterCA",
        "-DNSClusterIP",
        "-KubeletExtraArgs",
    ]
    return tokens[-1]


@pytest.mark.parametrize("family", FAMILIES)
@given(labels=labels, taints=taints)
def test_labels_and_taints_are_read_back_as_they_were_put_in(
    family: str, labels: dict[str, str], taints: list[Taint]
) -> None:
    data = with_node(family, labels, taints)
    of_labels, of_taints = registered(family, data)
    by_kubelet = {key: value for key, value in labels.items() if kubelet_may_set(key)}
    assert of_labels == by_kubelet | BY_LEEWAY
    assert of_labels | dict(data.labels_for_admission) == labels | BY_LEEWAY
    assert sorted(of_taints) == sorted((t.key, t.value, t.effect) for t in taints)


@pytest.mark.parametrize("family", FAMILIES)
@given(key=st.one_of(name, hostile), value=st.one_of(values, hostile))
def test_a_hostile_label_is_refused_or_read_back(family: str, key: str, value: str) -> None:
    try:
        data = with_node(family, {key: value}, [])
    except UserDataError:
        return
    of_labels, of_taints = registered(family, data)
    assert of_labels | dict(data.labels_for_admission) == {key: value} | BY_LEEWAY
    assert of_taints == []


@pytest.mark.parametrize("family", FAMILIES)
@given(
    key=st.one_of(name, hostile),
    value=st.one_of(values, hostile),
    effect=st.one_of(st.sampled_from(EFFECTS), hostile),
)
def test_a_hostile_taint_is_refused_or_read_back(
    family: str, key: str, value: str, effect: str
) -> None:
    try:
        data = with_node(family, {}, [Taint(key, value, effect)])
    except UserDataError:
        return
    assert registered(family, data) == (BY_LEEWAY, [(key, value, effect)])


@given(
    field=st.sampled_from(["name", "endpoint", "certificate_authority", "service_cidr", "dns"]),
    text=hostile,
    around=st.booleans(),
)
def test_a_hostile_cluster_is_refused_or_read_back(field: str, text: str, around: bool) -> None:
    before: Any = getattr(CLUSTER, field)
    value: Any = f"{before}{text}" if around and field != "dns" else text
    changed: dict[str, Any] = {field: (value,) if field == "dns" else value}
    try:
        cluster = replace(CLUSTER, **changed)
    except UserDataError:
        return
    expected = (cluster.name, cluster.endpoint, cluster.certificate_authority)
    for family in FAMILIES:
        with contextlib.suppress(UserDataError):
            found = identity(family, cluster)
            assert found == (*expected, cluster.dns_addresses[0])


def identity(family: str, cluster: ClusterDetails) -> tuple[str, str, str, str]:
    """The cluster as a node of the family reads it."""
    text = render(template(family), cluster, machine_of("m5.large")).text
    if family == "AL2023":
        spec = node_config(text)["spec"]
        of, dns = spec["cluster"], spec["kubelet"]["config"]["clusterDNS"][0]
        return of["name"], of["apiServerEndpoint"], of["certificateAuthority"], dns
    if family == "AL2":
        with tempfile.TemporaryDirectory() as folder:
            found, given = options(run_bash(mime_parts(text)[0].payload, Path(folder)))
        return (
            found,
            given["--apiserver-endpoint"],
            given["--b64-cluster-ca"],
            given["--dns-cluster-ip"],
        )
    if family == "Bottlerocket":
        settings = tomllib.loads(text)["settings"]["kubernetes"]
        return (
            settings["cluster-name"],
            settings["api-server"],
            settings["cluster-certificate"],
            settings["cluster-dns-ip"],
        )
    tokens = powershell_tokens(text.splitlines()[-2])
    return tokens[3], tokens[5], tokens[7], tokens[9]


@given(st.text())
def test_an_error_is_one_line(text: str) -> None:
    (line,) = str(UserDataError("field", f"a\n{text}\u2028b")).splitlines()
    assert line.startswith("field: a")


@given(st.lists(st.one_of(name, st.text("a1 '\"`$\\\u2019,=<%:/@[]-\n\x7fé")), max_size=3))
def test_quoted_text_is_one_literal_of_powershell_and_of_a_shell(words: list[str]) -> None:
    try:
        text = quoted(*words)
    except UserDataError:
        return
    assert powershell_tokens(text) == [" ".join(words)]
    assert shlex.split(text) == [" ".join(words)]
    assert all(word.isascii() and not set(word) & set(" '\"`$\\") for word in words)


PIECES = (
    "MIME-Version: 1.0\n",
    'Content-Type: multipart/mixed; boundary="x"\n',
    "Content-Type: multipart/mixed; boundary=//\n",
    "Content-Type: text/x-shellscript\n",
    "Content-Type: application/node.eks.aws\n",
    "Content-Transfer-Encoding: base64\n",
    "X: y\n",
    "--x\n",
    "--x--\n",
    "--//\n",
    "--//--\n",
    "--leeway-1\n",
    "\n",
    "\r\n",
    "\r",
    " ",
    "#!/bin/bash\n",
    "echo hello\n",
    "apiVersion: node.eks.aws/v1alpha1\n",
    "kind: NodeConfig\n",
    "spec: {kubelet: {config: {maxPods: 3}}}\n",
    "spec: {kubelet: []}\n",
    "spec: {kubelet: {config: 1, flags: {a: b}}}\n",
    "spec: {kubelet: {flags: [--max-pods=5, 3, null]}}\n",
    "--- \n",
    "[settings]\n",
    "[settings.kubernetes]\n",
    "kubernetes = 1\n",
    "autoscaling = 3\n",
    "node-labels = 5\n",
    'node-labels = ["a"]\n',
    "eviction-hard = 2\n",
    "max-pods = 1\n",
    "<powershell>",
    "</powershell>",
    "<persist>true</persist>",
    "\ufeff",
)
own_data = st.one_of(
    st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
)


def of_user(family: str, own: str) -> str | None:
    of = replace(template(family), user_data=own)
    with contextlib.suppress(UserDataError):
        return render(of, CLUSTER, machine_of("m5.large")).text
    return None


@settings(max_examples=100)
@given(own=own_data, family=st.sampled_from(["AL2023", "AL2"]))
def test_leeways_part_is_the_last_one_for_any_user_data(own: str, family: str) -> None:
    text = of_user(family, own)
    plain = of_user(family, "")
    assert plain is not None
    if text is None:
        return
    *others, last = mime_parts(text)
    assert last.content_type == (NODE_CONFIG if family == "AL2023" else SHELL)
    if family == "AL2":
        assert last == mime_parts(plain)[0]
    else:
        assert 'name: "prod"' in last.payload
    headers = ("content-type:", "mime-version:")
    if len(others) == 1 and not any(name in own.lower() for name in headers):
        assert others[0].payload == with_unix_lines(own)


@settings(max_examples=100)
@given(own=own_data)
def test_the_identity_of_bottlerocket_is_leeways_for_any_settings(own: str) -> None:
    text = of_user("Bottlerocket", own)
    if text is not None:
        kubernetes = tomllib.loads(text)["settings"]["kubernetes"]
        assert kubernetes["cluster-name"] == CLUSTER.name
        assert kubernetes["api-server"] == CLUSTER.endpoint
        assert kubernetes["max-pods"] == 29


@settings(max_examples=100)
@given(own=own_data)
def test_windows_user_data_is_one_block_that_ends_with_the_bootstrap(own: str) -> None:
    text = of_user("Windows2022", own)
    if text is not None:
        assert text.lower().count("<powershell>") == text.lower().count("</powershell>") == 1
        inside = text.partition("<powershell>\n")[2].partition("\n</powershell>")[0]
        assert inside.rsplit("\n", 1)[-1].startswith("& $EKSBootstrapScriptFile -EKSClusterName")
