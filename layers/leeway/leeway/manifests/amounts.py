"""Resource quantities: users write text or numbers; Leeway stores what Kubernetes prints."""

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from leeway.manifests.base import LabelKey
from leeway.selection.quantities import requested_quantity


def _amount(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    return str(requested_quantity(str(value)))


Amount = Annotated[
    str,
    BeforeValidator(_amount),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "description": "A quantity such as 500m, 2 or 1Gi.",
        }
    ),
]
Amounts = dict[LabelKey, Amount]
"""A quantity for each resource: `cpu`, `memory`, `nvidia.com/gpu`, …"""
