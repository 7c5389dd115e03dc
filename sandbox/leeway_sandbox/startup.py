"""Starts the processes of a sandbox, connects them, and publishes their endpoints in its folder;
clients of the sandbox bypass a proxy of the environment."""

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import getproxies_environment

from leeway_sandbox.access import bearer, new_token
from leeway_sandbox.children import Child
from leeway_sandbox.control import Controls
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.installed import ROOT
from leeway_sandbox.scenario import Scenario

if TYPE_CHECKING:
    from leeway_sandbox.real_cluster.target import RealCluster


START_TIMEOUT = 60.0
TOKEN_FILE = "control-token"
RBAC = ROOT / "rbac"


@dataclass(frozen=True)
class Endpoints:
    """The endpoints of a running sandbox, and other values that later commands need."""

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
    """Starts the three processes and connects them to each other."""

    state_dir: Path
    scenario: Scenario
    host: str
    advertise: str
    options: Mapping[str, Sequence[str]]
    children: list[Child]
    real: "RealCluster | None" = None

    def run(self, template: Path) -> Endpoints:
        """Start the processes and wait until they are ready; SandboxError if one is not."""
        headers = bearer(new_token(self.state_dir / TOKEN_FILE))
        # The import of SAM's translator takes about as long as the start of moto: do both at once.
        warming = threading.Thread(target=_import_translator, args=(template,), daemon=True)
        kubernetes = self._start_cluster()
        aws = self._start("aws", self._seed())
        warming.start()
        aws_report = aws.ready(START_TIMEOUT)
        aws_url = f"http://127.0.0.1:{aws_report['port']}"
        # Functions send a cluster's token only to hosts of EKS and to the host of their AWS calls.
        called_at = f"http://{self.advertise}:{aws_report['port']}"
        lambda_service = self._start("lambda", ["--aws", called_at])
        cluster_report = kubernetes.ready(START_TIMEOUT)
        lambda_url = f"http://127.0.0.1:{lambda_service.ready(START_TIMEOUT)['port']}"
        warming.join()
        endpoints = Endpoints(
            pid=os.getpid(),
            cluster=self.scenario.cluster,
            nodes=self.scenario.nodes,
            aws=aws_url,
            lambda_=lambda_url,
            kubernetes=f"https://127.0.0.1:{cluster_report['port']}",
            kubernetes_control=cluster_report["control"],
            ca=cluster_report["ca"],
            token=cluster_report["token"],
            advertise=self.advertise,
        )
        self._link(endpoints, cluster_report["port"], headers)
        return endpoints

    def _start_cluster(self) -> Child:
        certificate = ["--certificate", str(self.state_dir / "certificate")]
        certificate += ["--san", self.advertise]
        # The functions have the same rights as on EKS, so that a missing right shows here first.
        rights = ["--rbac", str(RBAC)]
        if self.real is not None:
            found = ["--kubeconfig", str(self.real.kubeconfig), "--context", self.real.context]
            machines = ["--join-command", self.real.join, "--leave-command", self.real.leave]
            nodes = [word for name in self.real.nodes for word in ("--node", name)]
            arguments = [*certificate, *rights, *found, *machines, *nodes]
            return self._start("kubernetes", arguments, module="real_cluster")
        cluster = ["--cluster-name", self.scenario.cluster]
        # The first nodes join without a delay, because no function watches the cluster yet.
        initial = ["--initial-nodes", str(self.scenario.nodes)]
        arguments = [*cluster, *certificate, *rights, *initial, *self._seed()]
        return self._start("kubernetes", arguments)

    def _start(self, part: str, arguments: Sequence[str], module: str = "") -> Child:
        module = module or {"lambda": "lambda_service"}.get(part, part)
        child = Child.start(
            f"leeway_sandbox.{module}",
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
        """Start the node autoscaler."""
        options = ["--cluster", self.scenario.cluster, "--aws", aws_url]
        options += ["--kubeconfig", str(kubeconfig), *self.options.get("autoscaler", ())]
        child = Child.start("leeway_sandbox.autoscaler", options, self.state_dir / "autoscaler.log")
        self.children.append(child)
        child.ready(START_TIMEOUT)

    def _seed(self) -> list[str]:
        return ["--seed", str(self.scenario.seed)]

    def _link(self, endpoints: Endpoints, kubernetes_port: int, headers: Mapping[str, str]) -> None:
        name = self.scenario.cluster
        links = {
            "kubernetes": {name: endpoints.kubernetes_control},
            "eks": {
                name: {
                    "endpoint": f"https://{self.advertise}:{kubernetes_port}",
                    "ca_file": endpoints.ca,
                }
            },
            "lambda": endpoints.lambda_,
        }
        Controls({"aws": endpoints.aws}, headers).call("aws", "PUT", "links", links)


def _import_translator(template: Path) -> None:
    if template.exists():
        import leeway_sandbox.template  # noqa: F401


STATE_FILE, LOCK_FILE = "sandbox.json", "lock"


@contextmanager
def state_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock of the folder. The kernel releases it when this process exits or crashes."""
    with (state_dir / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(
                f"A sandbox already runs with its state in {state_dir}. Stop it with `leeway "
                "sandbox down`, or give another folder with --state-dir."
            ) from None
        yield


def is_running(state_dir: Path) -> bool:
    """Whether a process holds the lock of the folder."""
    try:
        with state_lock(state_dir):
            return False
    except SandboxError:
        return True


@contextmanager
def published(state_dir: Path, endpoints: Endpoints) -> Iterator[None]:
    """Write the endpoints for `read_endpoints`, readable only by their owner; delete them after."""
    file = state_dir / STATE_FILE
    file.touch(mode=0o600)
    file.write_text(json.dumps(asdict(endpoints), indent=2))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def read_endpoints(state_dir: Path) -> Endpoints:
    """Return the endpoints of the sandbox that runs with this folder.

    Raises:
        SandboxError: none runs.
    """
    try:
        state = json.loads((state_dir / STATE_FILE).read_text())
    except FileNotFoundError:
        raise SandboxError(
            f"No sandbox runs with its state in {state_dir}. Start one with `leeway sandbox "
            "up`, or give its folder with --state-dir."
        ) from None
    if not is_running(state_dir):
        raise SandboxError(
            f"The sandbox with its state in {state_dir} exited unexpectedly. Read the logs in "
            "that folder, then start the sandbox again."
        )
    return Endpoints(**{**state, "foreign_instances": tuple(state["foreign_instances"])})


_OWN = ("127.0.0.1", "localhost")


def proxy_exceptions(*hosts: str) -> dict[str, str]:
    """Return the variables that let clients reach these hosts and this machine without the proxy.

    Empty if the environment has no proxy. Existing exceptions are kept.
    """
    named = getproxies_environment()
    exceptions = [host for host in named.pop("no", "").split(",") if host.strip()]
    if not named or exceptions == ["*"]:
        return {}
    value = ",".join(dict.fromkeys([*exceptions, *_OWN, *hosts]))
    # Some clients read the first one, others the second one.
    return {"NO_PROXY": value, "no_proxy": value}


def bypass_proxies(*hosts: str) -> None:
    """Set these variables in this process and for its child processes."""
    os.environ.update(proxy_exceptions(*hosts))
