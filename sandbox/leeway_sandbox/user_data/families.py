"""Chooses how an AMI family reads user data."""

from collections.abc import Callable, Mapping

from leeway_sandbox.user_data import bootstrap_sh, bottlerocket, nodeadm, windows
from leeway_sandbox.user_data.configuration import Family, NodeConfiguration

_PARSERS: Mapping[Family, Callable[[bytes], NodeConfiguration]] = {
    "AL2": bootstrap_sh.parse,
    "AL2023": nodeadm.parse,
    "Bottlerocket": bottlerocket.parse,
    "Windows": windows.parse,
}


def read_user_data(family: Family, data: bytes) -> NodeConfiguration:
    """The node that user data (decoded from EC2's base64) describes on an AMI of this family.

    Raises BootError, with a reason in one line, if an instance with it does not become a node.
    """
    return _PARSERS[family](data)
