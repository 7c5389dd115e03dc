"""A node autoscaler, which raises Auto Scaling groups: `python -m leeway_sandbox.autoscaler`.

It follows the rules of the Cluster Autoscaler that matter to headroom. It adds as many nodes as the
pending pods need, up to the maximum of the group, and counts nodes that are launching. It ignores
pods with a priority below -10. A pod with a nominated node counts as a pod on that node. It never
makes a group smaller.
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

from leeway_sandbox.kubernetes.controllers.scheduling_info import NodeInfo, PodInfo, read_pod_info
from leeway_sandbox.kubernetes.objects import is_finished, is_ready, name_of
from leeway_sandbox.kubernetes.selectors import label_selector
from leeway_sandbox.process import has_parent, report_ready
from leeway_sandbox.provisioning import client

log = logging.getLogger(__name__)

Document = Mapping[str, Any]

EXPENDABLE = -10  # --expendable-pods-priority-cutoff: pods below it add no nodes
HOSTNAME = "kubernetes.io/hostname"
COUNTED_STATES = {"Pending", "Pending:Wait", "Pending:Proceed", "InService"}
TEMPORARY_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "leeway.sh/")


@dataclass(frozen=True)
class Group:
    """A group, the node that it would launch, and the pods of DaemonSets on such a node.

    `launching` is the number of nodes that are launching and not Ready yet.
    """

    name: str
    desired: int
    maximum: int
    launching: int
    node: Document
    daemons: tuple[PodInfo, ...] = ()

    def launched(self) -> NodeInfo:
        """Return a new node of the group, on which only DaemonSets run."""
        node_info = NodeInfo(dict(self.node))
        for daemon in self.daemons:
            node_info.add_pod(daemon)
        return node_info


def read_state(
    pods: Iterable[Document], nodes: Iterable[Document]
) -> tuple[list[PodInfo], list[NodeInfo]]:
    """Return the pending pods, and the nodes with their pods, from one list of all pods.

    Both come from one list: with two lists, a pod that is bound between them would count as pending
    and also use the room of its node. Expendable pods are ignored.
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
        elif _is_pending(pod):
            waiting.append(info)
    return waiting, list(node_infos.values())


def plan(
    pending: Iterable[PodInfo], node_infos: Iterable[NodeInfo], groups: Sequence[Group]
) -> Counter[str]:
    """Return how many nodes each group needs to add for the pending pods.

    The largest pods are placed first, each on the first node that has room. The groups are tried in
    their order.
    """
    nodes = [*node_infos, *(group.launched() for group in groups for _ in range(group.launching))]
    added: Counter[str] = Counter()
    for info in sorted(pending, key=_size, reverse=True):
        if any(_place(info, node_info) for node_info in nodes):
            continue
        for group in groups:
            node_info = group.launched()
            if group.desired + added[group.name] < group.maximum and _place(info, node_info):
                nodes.append(node_info)
                added[group.name] += 1
                break
    return added


def _size(info: PodInfo) -> tuple[int, int]:
    return info.requests.get("cpu", 0), info.requests.get("memory", 0)


def _place(info: PodInfo, node_info: NodeInfo) -> bool:
    """Place the pod on the node if it fits; return whether it does."""
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
    """Return a new node like this one: without its name, cordon and temporary taints."""
    labels = {key: value for key, value in node["metadata"]["labels"].items() if key != HOSTNAME}
    taints = [
        t for t in node["spec"].get("taints") or () if not t["key"].startswith(TEMPORARY_TAINTS)
    ]
    return {"metadata": {"name": "new", "labels": labels}, "spec": {"taints": taints}} | {
        "status": {"allocatable": node["status"]["allocatable"]}
    }


class Autoscaler:
    """Scans a cluster and its groups, and raises groups for pending pods."""

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

    def scan(self) -> Counter[str]:
        """Scan once; return by how much each group was raised.

        It reads pods, then nodes, then groups. With this order a node that joins during the scan is
        counted as Ready or as launching.
        """
        pods = self._list("pods")
        if not any(_is_pending(pod) for pod in pods):
            return Counter()
        nodes = {_instance(node): node for node in self._list("nodes") if is_ready(dict(node))}
        groups = [self._group(found, nodes, pods) for found in self._groups()]
        known = [group for group in groups if group]
        waiting, node_infos = read_state(pods, nodes.values())
        added = plan(waiting, node_infos, known)
        for group in known:
            if number := added[group.name]:
                wanted = group.desired + number
                log.info("%d pods are pending: raise %s to %d", len(waiting), group.name, wanted)
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
        own = [g for g in found if any(tag["Key"] == self._tag for tag in g["Tags"])]
        return sorted(own, key=lambda group: str(group["AutoScalingGroupName"]))

    def _group(
        self, found: Document, nodes: Mapping[str, Document], pods: Sequence[Document]
    ) -> Group | None:
        name = found["AutoScalingGroupName"]
        members = [
            member["InstanceId"]
            for member in found["Instances"]
            if member["LifecycleState"] in COUNTED_STATES
        ]
        ready = [nodes[member] for member in members if member in nodes]
        if ready:
            self._nodes[name] = ready[-1]
        if name not in self._nodes:
            return None  # no node of the group was ever Ready, so its shape is not known
        node = self._nodes[name]
        here = [pod for pod in pods if pod["spec"].get("nodeName") == node["metadata"]["name"]]
        daemons = tuple(read_pod_info(dict(pod)) for pod in here if _owner(pod) == "DaemonSet")
        desired = int(found["DesiredCapacity"])
        launching = max(desired - len(ready), 0)
        return Group(name, desired, int(found["MaxSize"]), launching, as_launched(node), daemons)


def _is_pending(pod: Document) -> bool:
    """Whether the scheduler found no node for the pod."""
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
    """Scan periodically, until the process that started this one exits."""
    parser = argparse.ArgumentParser(
        prog="python -m leeway_sandbox.autoscaler", description=__doc__
    )
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--aws", required=True, metavar="URL")
    parser.add_argument("--kubeconfig", required=True, type=Path)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two scans")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="autoscaler %(levelname)s %(message)s")
    autoscaler = Autoscaler(options.cluster, options.aws, options.kubeconfig)
    report_ready()
    while has_parent():
        time.sleep(options.interval)
        try:
            autoscaler.scan()
        except Exception:
            log.exception("The scan failed")


if __name__ == "__main__":
    main()
