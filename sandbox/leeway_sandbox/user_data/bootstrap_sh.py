"""Reads user data as cloud-init and /etc/eks/bootstrap.sh do, the bootstrap of AL2's AMIs.

Source: `templates/al2/runtime/bootstrap.sh` of awslabs/amazon-eks-ami. An option takes its value
from the next word. What is no option counts as a positional argument, also `--option=value`, and
the first of these is the name of the cluster. Without endpoint and CA it asks DescribeCluster.
"""

import base64
import binascii
import shlex
from collections.abc import Sequence
from typing import Any

from leeway_sandbox.user_data import kubelet
from leeway_sandbox.user_data.configuration import BootError, NodeConfiguration
from leeway_sandbox.user_data.fields import named
from leeway_sandbox.user_data.parts import inflated, multipart, text_of
from leeway_sandbox.user_data.shell import Word, commands

SCRIPT = "/etc/eks/bootstrap.sh"
_SHELL_PART = "text/x-shellscript"
_OPTIONS = named(
    "string",
    """--apiserver-endpoint --aws-api-retry-attempts --b64-cluster-ca --cluster-id
    --container-runtime --containerd-config-file --dns-cluster-ip --docker-config-json
    --enable-docker-bridge --enable-local-outpost --ip-family --kubelet-extra-args --local-disks
    --mount-bpf-fs --pause-container-account --pause-container-version --service-ipv6-cidr
    --use-max-pods""",
)
_DEFAULT_MAX_PODS = 110  # the kubelet's own, without --use-max-pods


def parse(data: bytes) -> NodeConfiguration:
    """The node that this user data describes; BootError if bootstrap.sh or the kubelet fails."""
    arguments = _arguments(inflated(data))
    options, positional = _options(arguments)
    if not positional or not positional[0]:
        raise BootError("bootstrap.sh exits: cluster name is not defined")
    _validate(options)
    words = _kubelet_words(options.get("--kubelet-extra-args", ""))
    config: dict[str, Any] = {}
    if addresses := options.get("--dns-cluster-ip"):
        config["clusterDNS"] = addresses.split(",")
    if options.get("--use-max-pods", "true") != "true":
        config["maxPods"] = _DEFAULT_MAX_PODS
    configuration, _ = kubelet.start(config, words)
    endpoint = options.get("--apiserver-endpoint")
    authority = options.get("--b64-cluster-ca")
    is_given = bool(endpoint and authority)
    return NodeConfiguration(
        family="AL2",
        cluster=positional[0],
        endpoint=endpoint if is_given else None,
        certificate_authority=_decoded(authority) if is_given and authority else None,
        kubelet=configuration,
        ignored=tuple(f"argument {word!r} of bootstrap.sh" for word in positional[1:]),
    )


def _arguments(data: bytes) -> list[str]:
    """The arguments of the first command that runs bootstrap.sh."""
    for script in _scripts(data):
        for command in commands(script):
            names = [word.text for word in command]
            if SCRIPT in names[:3]:  # perhaps after sudo, bash or exec
                return _known(command[names.index(SCRIPT) + 1 :])
    raise BootError(f"no command of the user data runs {SCRIPT}")


def _scripts(data: bytes) -> list[str]:
    parts = multipart(data)
    if parts is None:
        text = text_of(data)
        if not text.startswith("#!"):
            raise BootError("cloud-init runs no user data that is neither MIME nor begins with #!")
        return [text]
    return [text_of(part.content) for part in parts if part.content_type == _SHELL_PART]


def _known(words: Sequence[Word]) -> list[str]:
    for number, word in enumerate(words, start=1):
        if not word.is_known:
            raise BootError(
                f"argument {number} of bootstrap.sh is the output of a command, which the sandbox "
                "does not run"
            )
    return [word.text for word in words]


def _options(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    positional, rest = [], list(arguments)
    while rest:
        word = rest.pop(0)
        if word in {"-h", "--help"}:
            raise BootError("bootstrap.sh exits: --help prints text and starts nothing")
        if word not in _OPTIONS:
            positional.append(word)
        elif rest:
            options[word] = rest.pop(0)
        else:
            raise BootError(f"bootstrap.sh exits: {word} has no value")
    return options, positional


def _validate(options: dict[str, str]) -> None:
    runtime = options.get("--container-runtime", "containerd")
    if runtime != "containerd":
        raise BootError(
            "bootstrap.sh exits: containerd is the only supported container runtime as of "
            f"Kubernetes version 1.24, got {runtime!r}"
        )
    if options.get("--ip-family", "ipv4").lower() not in {"ipv4", "ipv6"}:
        raise BootError("bootstrap.sh exits: invalid --ip-family, only ipv4 or ipv6 are allowed")
    if options.get("--local-disks", "raid0") not in {"raid0", "mount", "none"}:
        raise BootError("bootstrap.sh exits: --local-disks: expected raid0 or mount")


def _kubelet_words(text: str) -> list[str]:
    """The kubelet's arguments. systemd reads them between single quotes from a unit's file, and
    splits them at spaces."""
    if "'" in text or "\n" in text:
        raise BootError("systemd cannot read --kubelet-extra-args: it has a quote ' or a new line")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BootError(f"systemd cannot read --kubelet-extra-args: {error}") from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BootError("bootstrap.sh exits: --b64-cluster-ca: expected base64") from error
