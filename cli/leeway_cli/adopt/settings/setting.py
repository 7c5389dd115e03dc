"""What all settings have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from botocore import xform_name
from leeway.wiring.clients import client

if TYPE_CHECKING:
    from leeway_cli.adopt.services import Services


@dataclass(frozen=True, slots=True)
class AwsCall:
    """A call of AWS with its parameters: what a plan shows, and what a change makes."""

    service: str
    operation: str
    parameters: Mapping[str, Any]

    def __str__(self) -> str:
        shown = " ".join(f"{name}={value}" for name, value in _shown(self.parameters))
        return f"{self.service}:{self.operation} {shown}"

    def make(self) -> None:
        """Make the call.

        Raises:
            ClientError, BotoCoreError: AWS refuses or does not answer.
        """
        getattr(client(self.service), xform_name(self.operation))(**self.parameters)


def _shown(parameters: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the names and values of parameters, those inside of others without their path."""
    for name, value in parameters.items():
        inside = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
        for one in inside:
            yield from _shown(one)
        if not inside:
            yield name, ",".join(map(str, value)) if isinstance(value, list) else value


class Kind(ABC):
    """A setting of a cluster, as a value. The state of a cluster is a mapping from keys to
    settings; a setting that is missing has no key in it. So a change is a pair of settings, before
    and after, and its inverse undoes it.

    `now` is the current setting with the same key, None if it is missing. Methods that read or
    write raise the errors of their services."""

    __slots__ = ()

    setting: str
    """The name of this kind, which JSON has, too."""

    @property
    def key(self) -> str:
        """The key of this setting: its kind, if a cluster has only one."""
        return self.setting

    @property
    @abstractmethod
    def title(self) -> str:
        """This setting, as messages name it."""

    @property
    def is_of_adopt(self) -> bool:
        """Whether adopt can have written a setting of this name. Release works with the rights of
        an administrator, so a record that somebody forged must not delete other objects."""
        return True

    @property
    def stays(self) -> str | None:
        """Why release leaves this setting although adopt wrote it; None if release undoes it."""
        return None

    def over(self, now: Self | None) -> Self:
        """Return this setting as it is after adopt wrote it."""
        return self

    def blocker(self, cluster: str, now: Self) -> str | None:
        """Return why no write can turn `now` into this setting; None if one can."""
        return None

    @abstractmethod
    def reason(self, cluster: str, now: Self | None) -> str:
        """Return why adopt writes this setting, with the command that does."""

    def consent(self, cluster: str, now: Self | None, current: Mapping[str, Any]) -> str | None:
        """Return which setting of somebody else the write changes; None if it changes none."""
        return None

    @abstractmethod
    def call(self, cluster: str, now: Self | None) -> AwsCall | str:
        """Return the call that writes this setting, or its most important parameters."""

    def removal(self, cluster: str) -> AwsCall | str:
        """Return the call that removes this setting."""
        raise ValueError(f"release never removes the {self.title}")

    def write(self, services: "Services", now: Self | None) -> None:
        """Make `call`."""
        _make(self.call(services.cluster, now))

    def later(self, services: "Services") -> str | None:
        """Return why release cannot remove this setting yet; None if it can."""
        return None

    def remove(self, services: "Services") -> None:
        """Make `removal`; a missing setting is not an error."""
        _make(self.removal(services.cluster))


def _make(call: AwsCall | str) -> None:
    if isinstance(call, str):
        raise TypeError(f"only a setting's own code makes {call}")
    call.make()


def listed(names: Iterable[str]) -> str:
    """Return names as a sentence has them."""
    return ", ".join(sorted(names)) or "none"
