"""Reads and writes the settings of one cluster, each by the service that has it."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from botocore.exceptions import ClientError
from leeway.aws.errors import code_of
from leeway.manifests.configuration import StoredManifest
from leeway.wiring.clients import client

from leeway_cli.cluster_setup.auto_scaling import AutoScaling
from leeway_cli.cluster_setup.cloudformation import CloudFormation
from leeway_cli.cluster_setup.difference import Change
from leeway_cli.cluster_setup.eks import Eks
from leeway_cli.cluster_setup.kubernetes_objects import KubernetesObjects
from leeway_cli.cluster_setup.settings import (
    AccessEntry,
    Authentication,
    ClusterManifest,
    ClusterObject,
    GroupHook,
    GroupTag,
    ManagedCluster,
    Mode,
    Setting,
    SpotRole,
    by_key,
)
from leeway_cli.cluster_setup.spot_role import create_spot_role, spot_role_exists
from leeway_cli.errors import CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.manifests.planned_change import CLUSTER, find, plan_body
from leeway_cli.stack import Stack


@dataclass(frozen=True, slots=True)
class Services:
    """The services with the settings of one cluster. `stack` has the table with the manifests."""

    cluster: str
    eks: Eks
    scaling: AutoScaling
    objects: KubernetesObjects
    stacks: CloudFormation
    stack: Stack

    def read(self, wanted: Iterable[Setting]) -> dict[str, Setting]:
        """Read the current state of these settings, with all hooks of their groups.

        Raises:
            CannotBeDoneError: AWS or the API server does not answer or refuses.
        """
        asked = [*wanted]
        with aws_errors(f"cluster {self.cluster}"), kubernetes_errors():
            return by_key(
                *self._read_eks(asked),
                *self._read_objects(asked),
                *self._read_groups(asked),
                *self._read_leeway(asked),
            )

    def _read_eks(self, asked: Iterable[Setting]) -> Iterator[Setting]:
        entries = [one.principal for one in asked if isinstance(one, AccessEntry)]
        if not entries and not any(isinstance(one, Authentication) for one in asked):
            return
        mode = self.eks.cluster(self.cluster).mode
        yield Authentication(mode)
        if mode is not Mode.CONFIG_MAP:
            yield from self.eks.entries(self.cluster, entries)

    def _read_objects(self, asked: Iterable[Setting]) -> Iterator[Setting]:
        for one in asked:
            if isinstance(one, ClusterObject) and (found := self.objects.read(one)) is not None:
                yield found

    def _read_groups(self, asked: Iterable[Setting]) -> Iterator[Setting]:
        keys = {one.key for one in asked}
        names = {one.group for one in asked if isinstance(one, GroupTag | GroupHook)}
        for group in self.scaling.read(sorted(names)) if names else ():
            yield from (tag for tag in group.tags.values() if tag.key in keys)
            yield from group.hooks

    def _read_leeway(self, asked: Iterable[Setting]) -> Iterator[Setting]:
        for one in asked:
            match one:
                case ManagedCluster(stack=stack, cluster=cluster):
                    if cluster in self.stacks.stack(stack).clusters:
                        yield one
                case ClusterManifest(cluster=cluster):
                    stored = self._manifest()
                    if stored is not None:
                        yield ClusterManifest(cluster, _normal(stored.body))
                case SpotRole() if spot_role_exists(client("iam")):
                    yield one

    def _manifest(self) -> StoredManifest | None:
        stored = self.stack.manifests().of(self.cluster, CLUSTER)
        return find(stored, CLUSTER, "", self.cluster)

    def write(self, change: Change) -> None:
        """Make one change.

        Raises:
            CannotBeDoneError: AWS or the API server does not answer or refuses.
        """
        with aws_errors(change.title), kubernetes_errors(), _missing_group(change):
            if change.after is None:
                self._remove(change)
            else:
                self._set(change.after, change)

    def _set(self, after: Setting, change: Change) -> None:
        match after:
            case Authentication(mode=mode):
                self.eks.switch_mode(self.cluster, mode)
            case AccessEntry() if change.before is None:
                self.eks.create_entry(self.cluster, after)
            case AccessEntry():
                self.eks.update_entry(self.cluster, after)
            case ClusterObject():
                self.objects.apply(after)
            case GroupTag():
                self.scaling.put_tag(after)
            case GroupHook():
                replaced = change.before if isinstance(change.before, GroupHook) else None
                self.scaling.put_hook(after, replaced)
            case ClusterManifest(body=body):
                self._store(body)
            case ManagedCluster(stack=stack, cluster=cluster):
                self.stacks.change_clusters(stack, add=cluster)
            case SpotRole():
                create_spot_role(client("iam"))
            case _:
                assert_never(after)

    def _remove(self, change: Change) -> None:
        match change.before:
            case AccessEntry() as entry:
                self.eks.delete_entry(self.cluster, entry)
            case ClusterObject() as one:
                self.objects.delete(one)
            case GroupTag() as tag:
                self.scaling.delete_tag(tag)
            case GroupHook() as hook:
                self.scaling.delete_hook(hook)
            case ClusterManifest():
                self._delete_manifest()
            case ManagedCluster(stack=stack, cluster=cluster):
                self.stacks.change_clusters(stack, remove=cluster)

    def _store(self, body: str) -> None:
        planned = plan_body(self._manifest(), CLUSTER, self.cluster, body, datetime.now(UTC))
        if planned.after is not None and planned.after != planned.before:
            replaces = planned.before.version if planned.before else 0
            self.stack.manifests().write(self.cluster, planned.after, replaces)

    def _delete_manifest(self) -> None:
        stored = self._manifest()
        if stored is not None:
            self.stack.manifests().delete(self.cluster, stored)


@contextmanager
def _missing_group(change: Change) -> Iterator[None]:
    """Name a group that was deleted meanwhile."""
    try:
        yield
    except ClientError as error:
        setting = change.setting
        message = error.response.get("Error", {}).get("Message", "")
        is_missing = code_of(error) == "ValidationError" and "not found" in message
        if isinstance(setting, GroupTag | GroupHook) and is_missing:
            raise CannotBeDoneError(
                f"Auto Scaling deleted group {setting.group} meanwhile. Run the command again "
                "without it."
            ) from error
        raise


def _normal(body: str) -> str:
    try:
        return json.dumps(json.loads(body), sort_keys=True)
    except ValueError:
        return body
