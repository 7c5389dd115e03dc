"""Which scripts bootstrap.sh and Start-EKSBootstrap.ps1 refuse, and how scripts are read."""

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_sandbox.user_data import bootstrap_sh, powershell, shell, windows
from leeway_sandbox.user_data.configuration import BootError

GIVEN = "--apiserver-endpoint https://demo --b64-cluster-ca Y2VydA=="
TEXTS = st.lists(st.text(st.characters(codec="ascii", exclude_characters="\r\0")), max_size=4)
# Nothing of this ends a command or runs another one.
TRICKY = st.text(st.sampled_from(list("ab \"'\\$X{}-=#~,:")), max_size=12)


def _al2(command: str) -> bytes:
    return f"#!/bin/bash\n{command}\n".encode()


def _windows(command: str) -> bytes:
    return f"<powershell>\n{command}\n</powershell>".encode()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo hello", "no command of the user data runs /etc/eks/bootstrap.sh"),
        ("echo /etc/eks/bootstrap.sh.old demo", "no command of the user data runs"),
        ("# /etc/eks/bootstrap.sh demo", "no command of the user data runs"),
        ("/etc/eks/bootstrap.sh", "cluster name is not defined"),
        (f"/etc/eks/bootstrap.sh {GIVEN}", "cluster name is not defined"),
        ("/etc/eks/bootstrap.sh demo --b64-cluster-ca", "--b64-cluster-ca has no value"),
        ("/etc/eks/bootstrap.sh demo --help", "prints text and starts nothing"),
        ("/etc/eks/bootstrap.sh demo --container-runtime dockerd", "only supported container run"),
        ("/etc/eks/bootstrap.sh demo --ip-family ipv5", "invalid --ip-family"),
        ("/etc/eks/bootstrap.sh $(hostname)", "argument 1 of bootstrap.sh is the output of a com"),
        ("/etc/eks/bootstrap.sh 'demo", "the quote ' is not closed"),
        ('/etc/eks/bootstrap.sh "demo', 'the quote " is not closed'),
        (f"/etc/eks/bootstrap.sh demo {GIVEN} --kubelet-extra-args --what=1", "unknown flag: --wh"),
        (
            f"""/etc/eks/bootstrap.sh demo {GIVEN} --kubelet-extra-args "--node-labels=a='b'" """,
            "systemd cannot read --kubelet-extra-args",
        ),
        ("/etc/eks/bootstrap.sh demo --apiserver-endpoint x --b64-cluster-ca ?", "expected base64"),
    ],
)
def test_bootstrap_sh_refuses_it(command: str, reason: str) -> None:
    with pytest.raises(BootError, match=reason):
        bootstrap_sh.parse(_al2(command))


def test_cloud_init_runs_only_scripts_and_mime() -> None:
    with pytest.raises(BootError, match="neither MIME nor begins with #!"):
        bootstrap_sh.parse(b"/etc/eks/bootstrap.sh demo\n")


def test_a_value_after_an_equals_sign_is_ignored() -> None:
    read = bootstrap_sh.parse(_al2("/etc/eks/bootstrap.sh demo --apiserver-endpoint=https://demo"))
    assert (read.cluster, read.endpoint) == ("demo", None)
    assert read.ignored == ("argument '--apiserver-endpoint=https://demo' of bootstrap.sh",)


def test_without_max_pods_of_its_own_the_kubelet_has_its_default() -> None:
    read = bootstrap_sh.parse(_al2(f"/etc/eks/bootstrap.sh demo {GIVEN} --use-max-pods false"))
    assert read.kubelet.max_pods == 110
    read = bootstrap_sh.parse(_al2(f"/etc/eks/bootstrap.sh demo {GIVEN}"))
    assert read.kubelet.max_pods is None


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("Write-Host hello", "no command of the user data runs Start-EKSBootstrap.ps1"),
        ("# & Start-EKSBootstrap.ps1 -EKSClusterName demo", "no command of the user data runs"),
        ("& Start-EKSBootstrap.ps1", "the mandatory parameter EKSClusterName is missing"),
        ("& Start-EKSBootstrap.ps1 demo", "no parameter takes the argument 'demo'"),
        ("& Start-EKSBootstrap.ps1 -Cluster demo", "matches parameter name 'Cluster'"),
        ("& Start-EKSBootstrap.ps1 -Kube x", "matches parameter name 'Kube'"),
        ("& Start-EKSBootstrap.ps1 -EKSClusterName", "parameter EKSClusterName has no argument"),
        ("& Start-EKSBootstrap.ps1 -EKSClusterName 'demo", "the quote ' is not closed"),
        ("& Start-EKSBootstrap.ps1 -EKS demo -ContainerRuntime rkt", "ContainerRuntime: expected"),
        ("& Start-EKSBootstrap.ps1 -EKS a -KubeletExtraArgs '--nope=1'", "unknown flag: --nope"),
        ("& Start-EKSBootstrap.ps1 -EKS a -KubeletExtraArgs '--v=\"1'", "double quote is not clo"),
        ("& Start-EKSBootstrap.ps1 -EKS a -API x -Base64ClusterCA '?'", "expected base64"),
    ],
)
def test_windows_bootstrap_refuses_it(command: str, reason: str) -> None:
    with pytest.raises(BootError, match=reason):
        windows.parse(_windows(command))


def test_ec2launch_runs_powershell_blocks_only() -> None:
    with pytest.raises(BootError, match="the user data has no <powershell> block"):
        windows.parse(b"& Start-EKSBootstrap.ps1 -EKSClusterName demo")


@given(TEXTS)
def test_quoted_words_of_a_shell_come_back_as_they_were(words: list[str]) -> None:
    script = f"/etc/eks/bootstrap.sh {' '.join(map(shlex.quote, words))}; echo done"
    [first, second] = shell.commands(script)
    assert [word.text for word in first] == ["/etc/eks/bootstrap.sh", *words]
    assert [word.text for word in second] == ["echo", "done"]


@settings(max_examples=150, deadline=None)
@given(TRICKY)
def test_words_are_split_as_bash_splits_them(text: str) -> None:
    script = f"printf '%s\\0' {text}"
    bash = ["bash", "--noprofile", "--norc", "-c", f"set -f; {script}"]
    run = subprocess.run(bash, capture_output=True, env={}, check=False)
    if run.returncode or run.stderr or any(sign in text for sign in ("{", "~", "#", "$")):
        return  # bash refuses it, or expands what user data does not use
    expected = run.stdout.decode().split("\0")[:-1]
    [command] = shell.commands(script)
    assert [word.text for word in command[2:]] == (expected if text.strip() else [])


@given(TEXTS)
def test_quoted_words_of_powershell_come_back_as_they_were(words: list[str]) -> None:
    quoted = ["'" + word.replace("'", "''") + "'" for word in words]
    commands = list(powershell.commands(f"& Start.ps1 {' '.join(quoted)}; Write-Host done"))
    assert commands == [["Start.ps1", *words], ["Write-Host", "done"]]
