"""By which address the containers of this machine's engine reach this machine."""

import ipaddress
import json
import subprocess
import sys

from sandbox.access import LOOPBACK
from sandbox.children import RefusedError

_ASK = ("docker", "network", "inspect", "bridge")
_DESKTOP = "host.docker.internal"


def addresses_for_containers() -> tuple[str, str]:
    """Return the address to listen at for containers, and the one that they call.

    On Linux both are this machine's address on Docker's bridge, which no other machine reaches.
    Engines in a virtual machine hand calls of their own name for this machine to its loopback
    address.

    Raises:
        RefusedError: no engine tells of its bridge.
    """
    if sys.platform != "linux":
        return LOOPBACK, _DESKTOP
    try:
        asked = subprocess.run(_ASK, capture_output=True, text=True, check=True, timeout=10)
        address = bridge_address(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise RefusedError(
            f"`{' '.join(_ASK)}` does not tell the address of Docker's bridge: {said.strip()}. "
            "Give --host and --advertise with the address by which containers reach this machine."
        ) from error
    return address, address


def bridge_address(inspected: str) -> str:
    """Return this machine's address on a network that Docker describes, as JSON."""
    settings = json.loads(inspected)[0]["IPAM"]["Config"][0]
    # An engine that was not told a gateway takes the subnet's first address, and does not list it.
    first = next(ipaddress.ip_network(settings["Subnet"]).hosts())
    return str(ipaddress.ip_address(settings.get("Gateway", str(first))))
