"""What instances print to their console, as EC2 returns it by GetConsoleOutput.

The lines are few, and shaped as those of cloud-init, nodeadm and the kubelet. Sources: EC2 API
reference, GetConsoleOutput; EC2 user guide, "Instance console output". EC2 has nothing during the
first moments, and the latest output only of instances of the Nitro System.
"""

import base64

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance
from moto.ec2.responses.general import General

MOST = 64 * 1024  # bytes

_BEGIN = "[    0.000000] Linux version 6.12.0-sandbox"
_printed: dict[str, list[str]] = {}


def install() -> None:
    """Answer GetConsoleOutput here: moto has the same text for every instance."""
    General.get_console_output = _answer  # type: ignore[method-assign]


def write(instance: Instance, *lines: str) -> None:
    """Have an instance print lines."""
    _printed.setdefault(instance.id, [_BEGIN]).extend(lines)


def _answer(self: General) -> ActionResult:
    self.error_on_dryrun()
    instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
    nitro = INSTANCE_TYPES[instance.instance_type].get("Hypervisor") == "nitro"
    if self._get_bool_param("Latest", False) and not nitro:
        raise EC2ClientError(
            "UnsupportedOperation",
            "This instance type does not support retrieving the latest console logs.",
        )
    text = "\n".join(_printed.get(instance.id, ())).encode()[-MOST:]
    output = {"Output": base64.b64encode(text).decode()} if text else {}
    return ActionResult({"InstanceId": instance.id, "Timestamp": utcnow(), **output})
