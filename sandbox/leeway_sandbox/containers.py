"""Finds the address at which containers on this machine reach this machine."""

import ipaddress
import json
import subprocess
import sys

from leeway_sandbox.access import LOOPBACK
from leeway_sandbox.errors import RefusedError

_INSPECT = ("docker", "network", "inspect", "bridge")
_DESKTOP = "host.docker.internal"


def addresses_for_containers() -> tuple[str, str]:
    """Return the address to listen at for containers, and the address that containers call.

    On Linux both are this machine's address on Docker's bridge, which no other machine reaches. An
    engine in a virtual machine forwards calls of its name for this machine to the loopback address.

    Raises:
        RefusedError: Docker does not return the address of its bridge.
    """
    if sys.platform != "linux":
        return LOOPBACK, _DESKTOP
    try:
        inspected = subprocess.run(_INSPECT, capture_output=True, text=True, check=True, timeout=10)
        address = bridge_address(inspected.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        problem = (getattr(error, "stderr", None) or str(error)).strip().rstrip(".")
        command = " ".join(_INSPECT)
        raise RefusedError(
            f"`{command}` does not return the address of Docker's bridge ({problem}). Give "
            "--host and --advertise with the address at which containers reach this machine."
        ) from error
    return address, address


def bridge_address(inspected: str) -> str:
    """Return this machine's address on a network that Docker describes, as JSON."""
    settings = json.loads(inspected)[0]["IPAM"]["Config"][0]
    # Without a configured gateway Docker uses the first address and does not list it.
    first = next(ipaddress.ip_network(settings["Subnet"]).hosts())
    return str(ipaddress.ip_address(settings.get("Gateway", str(first))))
