"""The settings that a cluster under care has in EKS, Kubernetes, Auto Scaling and Leeway's stack.

Each setting is one value with a key. The state of a cluster is a mapping from keys to settings; a
setting that is missing has no key in it. So a change is a pair of settings, before and after, and
its inverse undoes it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field

CLUSTER_TAG = "eks:cluster-name"
"""The tag of a group on which the conditions of Leeway's roles depend (template.yaml)."""


class Mode(StrEnum):
    """How a cluster authenticates IAM principals. Source: EKS API, `AccessConfigResponse`."""

    CONFIG_MAP = "CONFIG_MAP"
    BOTH = "API_AND_CONFIG_MAP"
    API = "API"


STANDARD = "STANDARD"
NODE_TYPES = frozenset({"EC2_LINUX", "EC2_WINDOWS"})
"""Types of access entries with which self-managed nodes join. Source: EKS API,
`CreateAccessEntry`."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """The authentication mode of the cluster. EKS never switches back from a newer mode."""

    mode: Mode
    setting: Literal["authentication"] = "authentication"

    @property
    def key(self) -> str:
        """The key of this setting."""
        return self.setting

    @property
    def title(self) -> str:
        """This setting, as messages name it."""
        return f"authentication mode {self.mode}"

    def over(self, now: Self | None) -> Self:
        """Return this setting as it is after adopt: both newer modes have access entries."""
        return now if now is not None and now.mode is not Mode.CONFIG_MAP else self


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """The access entry of an IAM role. `type` is one of EKS's types; the groups of an entry that is
    not STANDARD are EKS's own, and empty here."""

    principal: str
    groups: frozenset[str] = frozenset()
    type: str = STANDARD
    setting: Literal["access-entry"] = "access-entry"

    @property
    def key(self) -> str:
        """The key of this setting."""
        return f"{self.setting}/{self.principal}"

    @property
    def title(self) -> str:
        """This setting, as messages name it."""
        return f"access entry of {self.principal}"

    @property
    def is_of_nodes(self) -> bool:
        """Whether nodes can join with this entry."""
        return self.type in NODE_TYPES

    def over(self, now: Self | None) -> Self:
        """Return this entry with the groups that the existing entry has already. The existing entry
        of a node role stays as it is."""
        if now is None:
            return self
        if self.type != STANDARD:
            return now if now.is_of_nodes else self
        return type(self)(self.principal, self.groups | now.groups, now.type)


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """A Kubernetes object. `content` is JSON with sorted keys: the object reduced to the fields
    that Leeway sets. `ours`: Leeway's label or field manager is on it."""

    path: str
    """The path of its URL."""
    kind: str
    name: str
    content: str
    ours: bool = field(default=True, compare=False)
    setting: Literal["object"] = "object"

    @property
    def key(self) -> str:
        """The key of this setting."""
        return f"{self.setting}{self.path}"

    @property
    def title(self) -> str:
        """This setting, as messages name it."""
        return f"{self.kind} {self.name}"

    @property
    def body(self) -> dict[str, Any]:
        """The fields of the object that Leeway sets."""
        parsed: dict[str, Any] = json.loads(self.content)
        return parsed

    def over(self, _now: Self | None) -> Self:
        """Return this object: an apply sets all of its fields."""
        return self


@dataclass(frozen=True, slots=True)
class GroupTag:
    """A tag of an Auto Scaling group."""

    group: str
    value: str
    propagated: bool = True
    tag: str = CLUSTER_TAG
    setting: Literal["tag"] = "tag"

    @property
    def key(self) -> str:
        """The key of this setting."""
        return f"{self.setting}/{self.group}/{self.tag}"

    @property
    def title(self) -> str:
        """This setting, as messages name it."""
        return f"tag {self.tag} of group {self.group}"

    def over(self, _now: Self | None) -> Self:
        """Return this tag: a write replaces value and propagation."""
        return self


class Transition(StrEnum):
    """The transitions of an instance at which a hook waits. Source: Auto Scaling API."""

    LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
    TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"


@dataclass(frozen=True, slots=True)
class GroupHook:
    """A lifecycle hook of an Auto Scaling group. `timeout` is its heartbeat timeout in seconds,
    `target` the ARN of its own notification target, `role` and `metadata` go with the target."""

    group: str
    name: str
    transition: Transition
    timeout: int
    default: str = "CONTINUE"
    target: str = ""
    role: str = ""
    metadata: str = ""
    setting: Literal["hook"] = "hook"

    @property
    def key(self) -> str:
        """The key of this setting."""
        return f"{self.setting}/{self.group}/{self.name}"

    @property
    def title(self) -> str:
        """This setting, as messages name it."""
        return f"lifecycle hook {self.name} of group {self.group}"

    def over(self, _now: Self | None) -> Self:
        """Return this hook: a write replaces all of its fields."""
        return self


@dataclass(frozen=True, slots=True)
class ClusterManifest:
    """The Cluster manifest in Leeway's table. `body` is its text; a user's own text stays."""

    cluster: str
    body: str
    setting: Literal["manifest"] = "manifest"

    @property
    def key(self) -> str:
        """The key of this setting."""
        return self.setting

    @property
    def title(self) -> str:
        """This setting, as messages name it."""
        return f"manifest cluster/{self.cluster}"

    def over(self, now: Self | None) -> Self:
        """Return the manifest that is stored, or else this one."""
        return self if now is None else now


@dataclass(frozen=True, slots=True)
class ManagedCluster:
    """The name of the cluster in the parameter ClusterNames of Leeway's stack."""

    stack: str
    cluster: str
    setting: Literal["cluster-name"] = "cluster-name"

    @property
    def key(self) -> str:
        """The key of this setting."""
        return self.setting

    @property
    def title(self) -> str:
        """This setting, as messages name it."""
        return f"name {self.cluster} in ClusterNames of stack {self.stack}"

    def over(self, _now: Self | None) -> Self:
        """Return this name."""
        return self


@dataclass(frozen=True, slots=True)
class SpotRole:
    """EC2's service-linked role for Spot instances. The whole account uses it."""

    setting: Literal["spot-role"] = "spot-role"

    @property
    def key(self) -> str:
        """The key of this setting."""
        return self.setting

    @property
    def title(self) -> str:
        """This setting, as messages name it."""
        return "role AWSServiceRoleForEC2Spot of the account"

    def over(self, _now: Self | None) -> Self:
        """Return this role."""
        return self


type Setting = Annotated[
    Authentication
    | SpotRole
    | AccessEntry
    | ClusterObject
    | GroupTag
    | GroupHook
    | ClusterManifest
    | ManagedCluster,
    Field(discriminator="setting"),
]
"""One setting. As JSON, its field `setting` names its kind."""

type Settings = Mapping[str, Setting]
"""The settings of a cluster by their keys."""


def by_key(*settings: Setting) -> dict[str, Setting]:
    """Return settings by their keys."""
    return {one.key: one for one in settings}
