"""Starts a sandbox's processes, and tells each of the others."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3

from sandbox.access import bearer, new_token
from sandbox.children import ROOT, Child, SandboxError
from sandbox.scenario import Scenario

START_TIMEOUT = 60.0
TOKEN_FILE = "control-token"
RBAC = ROOT / "rbac"


@dataclass(frozen=True)
class Endpoints:
    """Where a running sandbox answers, and what else later commands need of it."""

    pid: int
    cluster: str
    nodes: int
    aws: str
    lambda_: str
    kubernetes: str
    kubernetes_control: str
    ca: str
    token: str
    advertise: str
    foreign_instances: tuple[str, ...] = ()


@dataclass(frozen=True)
class Startup:
    """Starts the three processes and tells each of the others."""

    state_dir: Path
    scenario: Scenario
    host: str
    advertise: str
    options: Mapping[str, Sequence[str]]
    children: list[Child]

    def run(self, template: Path) -> Endpoints:
        """Start them and wait until they serve; SandboxError when one does not."""
        headers = bearer(new_token(self.state_dir / TOKEN_FILE))
        # Expanding the template takes SAM's translator about as long to import as moto takes.
        warming = threading.Thread(target=_import_translator, args=(template,), daemon=True)
        cluster = ["--cluster-name", self.scenario.cluster]
        certificate = ["--certificate", str(self.state_dir / "certificate")]
        certificate += ["--san", self.advertise]
        # With the rights it has on EKS, so that a missing one shows here and not there.
        rights = ["--rbac", str(RBAC)]
        # Nobody is there yet who could see how long nodes take to join.
        standing = ["--standing", str(self.scenario.nodes)]
        kubernetes = self._start(
            "kubernetes", [*cluster, *certificate, *rights, *standing, *self._seed()]
        )
        aws = self._start("aws", self._seed())
        warming.start()
        aws_said = aws.ready(START_TIMEOUT)
        aws_url = f"http://127.0.0.1:{aws_said['port']}"
        # Functions send a cluster's token to EKS's hosts and to the host where they call AWS.
        called_at = f"http://{self.advertise}:{aws_said['port']}"
        lambda_service = self._start("lambda", ["--aws", called_at])
        cluster_said = kubernetes.ready(START_TIMEOUT)
        lambda_url = f"http://127.0.0.1:{lambda_service.ready(START_TIMEOUT)['port']}"
        warming.join()
        endpoints = Endpoints(
            pid=os.getpid(),
            cluster=self.scenario.cluster,
            nodes=self.scenario.nodes,
            aws=aws_url,
            lambda_=lambda_url,
            kubernetes=f"https://127.0.0.1:{cluster_said['port']}",
            kubernetes_control=cluster_said["control"],
            ca=cluster_said["ca"],
            token=cluster_said["token"],
            advertise=self.advertise,
        )
        self._link(endpoints, cluster_said["port"], headers)
        return endpoints

    def _start(self, part: str, arguments: Sequence[str]) -> Child:
        module = {"lambda": "lambda_service"}.get(part, part)
        child = Child.start(
            f"sandbox.{module}",
            [
                *("--host", self.host, "--advertise", self.advertise, "--port", "0"),
                *("--control-token", str(self.state_dir / TOKEN_FILE)),
                *arguments,
                *self.options.get(part, ()),
            ],
            self.state_dir / f"{part}.log",
        )
        self.children.append(child)
        return child

    def autoscaler(self, aws_url: str, kubeconfig: Path) -> None:
        """Start what raises groups for pods that find no room."""
        options = ["--cluster", self.scenario.cluster, "--aws", aws_url]
        options += ["--kubeconfig", str(kubeconfig), *self.options.get("autoscaler", ())]
        child = Child.start("sandbox.autoscaler", options, self.state_dir / "autoscaler.log")
        self.children.append(child)
        child.ready(START_TIMEOUT)

    def _seed(self) -> list[str]:
        return ["--seed", str(self.scenario.seed)]

    def _link(self, endpoints: Endpoints, kubernetes_port: int, headers: Mapping[str, str]) -> None:
        name = self.scenario.cluster
        answer = urllib3.request(
            "PUT",
            f"{endpoints.aws}/_sandbox/links",
            headers=headers,
            json={
                "kubernetes": {name: endpoints.kubernetes_control},
                "eks": {
                    name: {
                        "endpoint": f"https://{self.advertise}:{kubernetes_port}",
                        "ca_file": endpoints.ca,
                    }
                },
                "lambda": endpoints.lambda_,
            },
        )
        if answer.status >= 300:
            raise SandboxError(f"the sandbox's aws refused its links: {answer.data.decode()}")


def _import_translator(template: Path) -> None:
    if template.exists():
        import sandbox.template  # noqa: F401
