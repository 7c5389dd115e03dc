"""Reads user data as EC2Launch and Start-EKSBootstrap.ps1 do, the bootstrap of Windows' AMIs.

PowerShell binds parameters by name in any case, and by the beginning of a name if one parameter
alone has it; an unknown parameter ends the script. Without endpoint and CA the script asks
DescribeCluster.
"""

import base64
import binascii
import re
from collections.abc import Sequence

from leeway_sandbox.user_data import kubelet
from leeway_sandbox.user_data.configuration import BootError, NodeConfiguration
from leeway_sandbox.user_data.parts import inflated, text_of
from leeway_sandbox.user_data.powershell import commands

SCRIPT = "Start-EKSBootstrap.ps1"
_BLOCK = re.compile(r"<powershell>(.*?)</powershell>", re.DOTALL | re.IGNORECASE)
_PARAMETERS = (
    "EKSClusterName",
    "KubeletExtraArgs",
    "KubeProxyExtraArgs",
    "Endpoint",
    "APIServerEndpoint",
    "Base64ClusterCA",
    "DNSClusterIP",
    "ServiceCIDR",
    "ExcludedSnatCIDRs",
    "ContainerRuntime",
)
_RUNTIMES = {"docker", "containerd"}


def parse(data: bytes) -> NodeConfiguration:
    """The node that this user data describes; BootError if the script or the kubelet fails."""
    given = _bound(_arguments(text_of(inflated(data))))
    if not given.get("EKSClusterName"):
        raise BootError(f"{SCRIPT} exits: the mandatory parameter EKSClusterName is missing")
    runtime = given.get("ContainerRuntime", "containerd")
    if runtime.lower() not in _RUNTIMES:
        raise BootError(f"{SCRIPT} exits: ContainerRuntime: expected docker or containerd")
    config = {}
    if address := given.get("DNSClusterIP"):
        config["clusterDNS"] = [address]
    configuration, _ = kubelet.start(config, _words(given.get("KubeletExtraArgs", "")))
    endpoint, authority = given.get("APIServerEndpoint"), given.get("Base64ClusterCA")
    is_given = bool(endpoint and authority)
    return NodeConfiguration(
        family="Windows",
        cluster=given["EKSClusterName"],
        endpoint=endpoint if is_given else None,
        certificate_authority=_decoded(authority) if is_given and authority else None,
        kubelet=configuration,
    )


def _arguments(text: str) -> list[str]:
    """The arguments of the first command that runs the bootstrap script."""
    blocks = _BLOCK.findall(text)
    if not blocks:
        raise BootError("EC2Launch runs nothing: the user data has no <powershell> block")
    for block in blocks:
        for command in commands(block):
            if command[0].replace("\\", "/").rpartition("/")[2].lower() == SCRIPT.lower():
                return command[1:]
    raise BootError(f"no command of the user data runs {SCRIPT}")


def _bound(arguments: Sequence[str]) -> dict[str, str]:
    """The arguments by parameter, as PowerShell binds them."""
    given, rest = {}, list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            raise BootError(f"{SCRIPT} exits: no parameter takes the argument {word[:80]!r}")
        name, colon, value = word.removeprefix("-").partition(":")
        parameter = _parameter(name)
        if not colon:
            if not rest:
                raise BootError(f"{SCRIPT} exits: parameter {parameter} has no argument")
            value = rest.pop(0)
        given[parameter] = value
    return given


def _parameter(name: str) -> str:
    exact = [known for known in _PARAMETERS if known.lower() == name.lower()]
    begun = [known for known in _PARAMETERS if known.lower().startswith(name.lower())]
    found = exact or begun
    if len(found) != 1:
        raise BootError(
            f"{SCRIPT} exits: a parameter cannot be found that matches parameter name '{name}'"
        )
    return found[0]


def _words(text: str) -> list[str]:
    """The kubelet's arguments, split as Windows splits a command line: at spaces outside of
    double quotes."""
    if text.count('"') % 2:
        raise BootError("Windows cannot read KubeletExtraArgs: a double quote is not closed")
    return [word.replace('"', "") for word in re.findall(r'(?:[^\s"]|"[^"]*")+', text)]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BootError(f"{SCRIPT} exits: Base64ClusterCA: expected base64") from error
