"""Raises Auto Scaling groups for pods that find no node_info: `python -m sandbox.autoscaler`.

Stands in for a node autoscaler, by the rules of the Cluster Autoscaler that matter to headroom: as
many nodes as the pods info and the group's maximum allows, nodes that are on their way are counted
in, pods of a priority below -10 are no reason, and who preempts others is about to have their node_info.
It never makes a group smaller.
"""

import argparse
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
import yaml

from sandbox.kubernetes.controllers.scheduling_info import NodeInfo, PodInfo, read_pod_info
from sandbox.kubernetes.objects import is_finished, is_ready, name_of
from sandbox.kubernetes.selectors import label_selector
from sandbox.process import has_parent, report_ready
from sandbox.provisioning import client

log = logging.getLogger(__name__)

Document = Mapping[str, Any]

EXPENDABLE = -10  # --expendable-pods-priority-cutoff: what is below it waits for node_info
HOSTNAME = "kubernetes.io/hostname"
COMING = {"Pending", "Pending:Wait", "Pending:Proceed", "InService"}
PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "leeway.sh/")


@dataclass(frozen=True)
class Group:
    """A group, the node that it would launch, and the DaemonSets' pods that would run there.

    `coming` is how many nodes it was asked for that are not Ready yet.
    """

    name: str
    desired: int
    most: int
    coming: int
    node: Document
    daemons: tuple[PodInfo, ...] = ()

    def launched(self) -> NodeInfo:
        """One of its nodes as it is when nothing but DaemonSets runs there."""
        node_info = NodeInfo(dict(self.node))
        for daemon in self.daemons:
            node_info.add_pod(daemon)
        return node_info


def survey(
    pods: Iterable[Document], nodes: Iterable[Document]
) -> tuple[list[PodInfo], list[NodeInfo]]:
    """What waits for a node, and what each of these nodes has left, from one list of all pods.

    One list and not two: a pod that was bound in between would be seen to wait, and to fill the
    very node that came for it. Who preempts others has their node_info already, and pods that anybody
    may preempt have none.
    """
    node_infos = {name_of(dict(node)): NodeInfo(dict(node)) for node in nodes}
    waiting = []
    for pod in pods:
        info = read_pod_info(dict(pod))
        if info.priority < EXPENDABLE or is_finished(dict(pod)):
            continue
        node = pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName")
        if node in node_infos:
            node_infos[node].add_pod(info)
        elif _waits(pod):
            waiting.append(info)
    return waiting, list(node_infos.values())


def plan(
    pending: Iterable[PodInfo], node_infos: Iterable[NodeInfo], groups: Sequence[Group]
) -> Counter[str]:
    """How many nodes each group shall add for the pods that wait, given what there is.

    The largest pods are placed first, each where it fits first; of the groups, in their order.
    """
    standing = [*node_infos, *(group.launched() for group in groups for _ in range(group.coming))]
    added: Counter[str] = Counter()
    for info in sorted(pending, key=_size, reverse=True):
        if any(_put(info, node_info) for node_info in standing):
            continue
        for group in groups:
            node_info = group.launched()
            if group.desired + added[group.name] < group.most and _put(info, node_info):
                standing.append(node_info)
                added[group.name] += 1
                break
    return added


def _size(info: PodInfo) -> tuple[int, int]:
    return info.requests.get("cpu", 0), info.requests.get("memory", 0)


def _put(info: PodInfo, node_info: NodeInfo) -> bool:
    """Count the pod in, if it fits there."""
    if (
        node_info.taint_reason(info)
        or not node_info.matches(info)
        or node_info.insufficient(info)
        or node_info.port_holders(info.ports)
    ):
        return False
    for term in info.anti_affinity:
        apart = label_selector(term.selector or {})
        if term.topology_key == HOSTNAME and any(
            apart(pod.labels) for pod in node_info.pods.values()
        ):
            return False
    node_info.add_pod(info)
    return True


def as_launched(node: Document) -> Document:
    """A node like this one, new: without its name, its cordon and the marks of its past."""
    labels = {key: value for key, value in node["metadata"]["labels"].items() if key != HOSTNAME}
    taints = [t for t in node["spec"].get("taints") or () if not t["key"].startswith(PASSING)]
    return {"metadata": {"name": "new", "labels": labels}, "spec": {"taints": taints}} | {
        "status": {"allocatable": node["status"]["allocatable"]}
    }


class Autoscaler:
    """Looks at a cluster and its groups, and raises what must be raised."""

    def __init__(self, cluster: str, aws_url: str, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._tag = f"kubernetes.io/cluster/{cluster}"
        self._autoscaling = client("autoscaling", aws_url)
        self._url = server["server"]
        self._http = urllib3.PoolManager(
            ca_certs=server["certificate-authority"],
            headers={"Authorization": f"Bearer {user['token']}"},
        )
        self._nodes: dict[str, Document] = {}  # the last Ready node of each group

    def look(self) -> Counter[str]:
        """One scan: what was raised, and by how much.

        Nodes are read after the pods, and groups after the nodes: whatever changes in between, a
        node is missed neither among those that are there nor among those on their way.
        """
        pods = self._list("pods")
        if not any(_waits(pod) for pod in pods):
            return Counter()
        nodes = {_instance(node): node for node in self._list("nodes") if is_ready(dict(node))}
        groups = [self._group(found, nodes, pods) for found in self._groups()]
        known = [group for group in groups if group]
        waiting, node_infos = survey(pods, nodes.values())
        added = plan(waiting, node_infos, known)
        for group in known:
            if number := added[group.name]:
                wanted = group.desired + number
                log.info("%d pods wait: %s is raised to %d", len(waiting), group.name, wanted)
                self._autoscaling.set_desired_capacity(
                    AutoScalingGroupName=group.name, DesiredCapacity=wanted
                )
        return added

    def _list(self, path: str) -> list[dict[str, Any]]:
        answer = self._http.request("GET", f"{self._url}/api/v1/{path}")
        if answer.status != 200:
            raise urllib3.exceptions.HTTPError(f"HTTP {answer.status} for {path}")
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    def _groups(self) -> list[dict[str, Any]]:
        pages = self._autoscaling.get_paginator("describe_auto_scaling_groups").paginate()
        found = [group for page in pages for group in page["AutoScalingGroups"]]
        mine = [g for g in found if any(tag["Key"] == self._tag for tag in g["Tags"])]
        return sorted(mine, key=lambda group: str(group["AutoScalingGroupName"]))

    def _group(
        self, found: Document, nodes: Mapping[str, Document], pods: Sequence[Document]
    ) -> Group | None:
        name = found["AutoScalingGroupName"]
        members = [
            member["InstanceId"]
            for member in found["Instances"]
            if member["LifecycleState"] in COMING
        ]
        ready = [nodes[member] for member in members if member in nodes]
        if ready:
            self._nodes[name] = ready[-1]
        if name not in self._nodes:
            return None  # nobody knows what its nodes are like
        node = self._nodes[name]
        here = [pod for pod in pods if pod["spec"].get("nodeName") == node["metadata"]["name"]]
        daemons = tuple(read_pod_info(dict(pod)) for pod in here if _owner(pod) == "DaemonSet")
        desired = int(found["DesiredCapacity"])
        coming = max(desired - len(ready), 0)
        return Group(name, desired, int(found["MaxSize"]), coming, as_launched(node), daemons)


def _waits(pod: Document) -> bool:
    """Whether the scheduler found no node_info for it."""
    if "deletionTimestamp" in pod["metadata"] or pod["spec"].get("nodeName"):
        return False
    nowhere = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return any(nowhere.items() <= one.items() for one in pod["status"].get("conditions") or ())


def _owner(pod: Document) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return str(owners[0]["kind"]) if owners else ""


def _instance(node: Document) -> str:
    return str(node["spec"].get("providerID", "")).rpartition("/")[2]


def main() -> None:
    """Look again and again, until the process that started this one is gone."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.autoscaler", description=__doc__)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--aws", required=True, metavar="URL")
    parser.add_argument("--kubeconfig", required=True, type=Path)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two looks")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="autoscaler %(levelname)s %(message)s")
    autoscaler = Autoscaler(options.cluster, options.aws, options.kubeconfig)
    report_ready()
    while has_parent():
        time.sleep(options.interval)
        try:
            autoscaler.look()
        except Exception:
            log.exception("it could not look")


if __name__ == "__main__":
    main()
