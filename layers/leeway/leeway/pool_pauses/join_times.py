"""How long the latest nodes of a pool took from their launch until they were ready for pods."""

from typing import Annotated
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field

KEPT = 16
"""The join times of a pool that the table keeps at most."""


class JoinTime(BaseModel):
    """The seconds from the launch intent of an instance until Leeway admitted its node."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    pool: str
    instance: str
    seconds: Annotated[float, Field(ge=0)]

    @property
    def slot(self) -> int:
        """Which of the KEPT join times of its pool this one replaces. The instance decides: many
        nodes of one launch are written at the same time, and no write waits for another one."""
        return crc32(self.instance.encode()) % KEPT
