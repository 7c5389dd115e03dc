"""What the durable functions are started with: an instance, its cluster, and which generation."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from leeway.typed_json import adapter_of


@dataclass(frozen=True, slots=True)
class Order:
    """One generation of an instance's retirement or admission."""

    instance: Annotated[str, Field(pattern=r"^i-(?:[0-9a-f]{8}|[0-9a-f]{17})$")]
    cluster: Annotated[str, Field(min_length=1)]
    generation: Annotated[int, Field(ge=1)]


def parse_order(event: Any) -> Order:
    """Read what a function was started with.

    Raises:
        ValueError: it is no order; the message names the field and what was expected.
    """
    return adapter_of(Order).validate_python(event)
