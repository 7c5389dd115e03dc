"""Brings a whole sandbox up, from its three processes to pods that run, and takes it down."""

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import urllib3
import yaml

from sandbox.access import bearer, check_address, read_token
from sandbox.access_entries import access_entries
from sandbox.children import ROOT, Child, RefusedError, SandboxError, stop_all
from sandbox.provisioning import (
    client,
    create_workloads,
    credentials,
    kubeconfig,
    provision_aws,
)
from sandbox.proxies import bypass_proxies, proxy_exceptions
from sandbox.scenario import Scenario
from sandbox.startup import TOKEN_FILE, Endpoints, Startup

if TYPE_CHECKING:
    from sandbox.template import DeployedTemplate

__all__ = ["Endpoints", "Sandbox", "SandboxError"]

READY_TIMEOUT, READY_TIMEOUT_PER_OBJECT = 90.0, 0.05  # seconds; the latter for each node and pod
STATE_FILE, LOCK_FILE = "sandbox.json", "lock"
PARTS = ("kubernetes", "aws", "lambda")

# Is told what is being done and, where that can be counted, how much of it: (what, done, total).
ReportProgress = Callable[[str, int, int | None], None]


class Sandbox:
    """A sandbox that runs: its endpoints, its journals, and what can be done to it."""

    def __init__(self, state_dir: Path, endpoints: Endpoints) -> None:
        self.state_dir = state_dir
        self.endpoints = endpoints
        headers = bearer(read_token(state_dir / TOKEN_FILE))
        self._http = urllib3.PoolManager(retries=False, timeout=30.0, headers=headers)
        self._controls = {
            "kubernetes": endpoints.kubernetes_control,
            "aws": endpoints.aws,
            "lambda": endpoints.lambda_,
        }
        self._read = dict.fromkeys(PARTS, 0)
        self._entries: list[dict[str, Any]] = []
        self.deployed: DeployedTemplate | None = None

    @classmethod
    @contextmanager
    def start(
        cls,
        scenario: Scenario,
        *,
        state_dir: Path,
        host: str = "127.0.0.1",
        advertise: str = "127.0.0.1",
        template: Path = ROOT / "template.yaml",
        build: Path | None = None,
        parameters: Mapping[str, str] | None = None,
        options: Mapping[str, Sequence[str]] | None = None,
        grow: bool = False,
        report_progress: ReportProgress = lambda _what, _done, _total: None,
    ) -> Iterator[Self]:
        """Run a sandbox with this scenario in it while the context lasts.

        Args:
            scenario: what is in it.
            state_dir: its folder: kubeconfig, certificates, logs, and the file `attach` reads.
            host: another address at which its servers answer, besides 127.0.0.1.
            advertise: the name or IP address by which functions reach it: the cluster's endpoint
                has it in DescribeCluster, and its certificate is for it.
            template: the template to deploy.
            build: SAM's build folder, to run what `sam build` made instead of the source tree.
            parameters: the template's parameters, over the defaults.
            options: more arguments for its processes, by part (`kubernetes`, `aws`, `lambda`,
                `autoscaler`).
            grow: whether groups are raised for pods that find no room.
            report_progress: is told what is being done.

        Raises:
            RefusedError: the host stands for every interface.
            SandboxError: one of its processes did not start, or the scenario did not come to life.
        """
        try:
            check_address(host)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        bypass_proxies(advertise)
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        children: list[Child] = []
        with ExitStack() as stack:
            stack.enter_context(_state_lock(state_dir))
            stack.callback(stop_all, children)
            report_progress("starting its processes", 0, None)
            startup = Startup(state_dir, scenario, host, advertise, dict(options or {}), children)
            endpoints = startup.run(template)
            sandbox = cls(state_dir, endpoints)
            stack.callback(sandbox.close)
            report_progress("launching instances", 0, None)
            foreign_instances = provision_aws(scenario, endpoints.aws)
            sandbox.endpoints = replace(endpoints, foreign_instances=foreign_instances)
            report_progress("deploying template.yaml", 0, None)
            sandbox.deploy(template, parameters or {}, build)
            # Workloads come last: on a cluster of one node all of them would land on that one.
            sandbox.wait_for(scenario.nodes, 0, report_progress)
            report_progress("creating workloads", 0, None)
            create_workloads(scenario.workloads, sandbox.write_kubeconfig())
            if grow:
                startup.autoscaler(endpoints.aws, sandbox.kubeconfig)
            sandbox.wait_for(scenario.nodes, scenario.pods, report_progress)
            state_file = state_dir / STATE_FILE
            state_file.touch(mode=0o600)
            state_file.write_text(json.dumps(asdict(sandbox.endpoints), indent=2))
            stack.callback(state_file.unlink, missing_ok=True)
            yield sandbox

    @classmethod
    def attach(cls, state_dir: Path) -> Self:
        """The sandbox that runs with this folder; SandboxError when none does."""
        try:
            state = json.loads((state_dir / STATE_FILE).read_text())
        except FileNotFoundError:
            raise SandboxError(f"no sandbox runs with its state in {state_dir}") from None
        if not is_running(state_dir):
            raise SandboxError(f"the sandbox of {state_dir} has ended without a goodbye")
        return cls(
            state_dir,
            Endpoints(**{**state, "foreign_instances": tuple(state["foreign_instances"])}),
        )

    def close(self) -> None:
        """Close the connections to its control APIs."""
        self._http.clear()

    @property
    def aws_url(self) -> str:
        """Where all AWS services but Lambda answer."""
        return self.endpoints.aws

    @property
    def lambda_url(self) -> str:
        """Where Lambda answers."""
        return self.endpoints.lambda_

    @property
    def kubernetes_url(self) -> str:
        """Where the cluster's API answers."""
        return self.endpoints.kubernetes

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig with the admin's token."""
        return self.state_dir / "kubeconfig"

    def environment(self) -> dict[str, str]:
        """The variables with which AWS SDKs and CLIs talk to this sandbox, and Leeway's own command
        line finds what is deployed in it: only a sandbox that this process started knows that."""
        found = credentials(self.aws_url, self.lambda_url) | proxy_exceptions(
            self.endpoints.advertise
        )
        if self.deployed:
            (table,) = self.deployed.tables
            found["LEEWAY_TABLE"] = table.name
        return found

    def deploy(self, template: Path, parameters: Mapping[str, str], build: Path | None) -> None:
        """Deploy the template as CloudFormation would, with this cluster under care."""
        from sandbox.deployment import DeploymentError, deploy
        from sandbox.intrinsics import TemplateError
        from sandbox.template import read_template

        given = {"ClusterNames": self.endpoints.cluster, **parameters}
        try:
            self.deployed = read_template(template, given, build=build)
            deploy(self.deployed, self.aws_url, self.lambda_url, dict(self._http.headers))
            self._control("kubernetes", "PUT", "access", access_entries(self.deployed))
        except (DeploymentError, TemplateError) as error:
            raise SandboxError(f"{template}: {error}") from error

    def sam_environment(self) -> dict[str, dict[str, str]]:
        """What `sam local invoke --env-vars` takes: each function's variables, by logical id.

        Only a sandbox that this process started knows its functions.
        """
        host = self.endpoints.advertise
        outside = credentials(*(_at(host, url) for url in (self.aws_url, self.lambda_url)))
        functions = self.deployed.functions if self.deployed else ()
        return {function.logical_id: {**function.environment, **outside} for function in functions}

    def write_kubeconfig(self) -> dict[str, Any]:
        """Write `kubeconfig`, readable by its owner only, and return what it says."""
        ends = self.endpoints
        config = kubeconfig(ends.cluster, ends.kubernetes, ends.ca, ends.token)
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config, sort_keys=False))
        return config

    def wait_for(self, nodes: int, pods: int, report_progress: ReportProgress) -> None:
        """Wait until so many nodes are Ready and so many pods run."""
        timeout = READY_TIMEOUT + READY_TIMEOUT_PER_OBJECT * (nodes + pods)
        deadline = time.monotonic() + timeout
        counts = ReadyCounts()
        counts.update(self.journal())
        while counts.ready < nodes or counts.running < pods:
            now = f"{counts.ready} of {nodes} nodes Ready, {counts.running} of {pods} pods running"
            if time.monotonic() > deadline:
                raise SandboxError(f"after {timeout:.0f} s: {now}")
            report_progress(now, counts.ready + counts.running, nodes + pods)
            time.sleep(0.2)
            counts.update(self._read_new_entries())

    def journal(self) -> list[dict[str, Any]]:
        """Everything the sandbox's parts have seen so far, oldest first."""
        self._read_new_entries()
        self._entries.sort(key=lambda entry: entry["at"])
        return list(self._entries)

    def _read_new_entries(self) -> list[dict[str, Any]]:
        """What has been seen since this was last read, in order."""
        fresh: list[dict[str, Any]] = []
        for part in PARTS:
            found = self._control(part, "GET", f"journal?since={self._read[part]}")
            self._read[part] = found["next"]
            fresh += found["entries"]
        fresh.sort(key=lambda entry: entry["at"])
        self._entries += fresh
        return fresh

    def status(self) -> dict[str, Any]:
        """What each part says of itself, by part."""
        return {part: self._control(part, "GET", "status") for part in PARTS}

    def faults(self, part: str, faults: Sequence[Mapping[str, Any]]) -> None:
        """Replace the faults of a part (`kubernetes`, `aws` or `lambda`)."""
        self._control(part, "PUT", "faults", {"faults": list(faults)})

    def send(self, event: Mapping[str, Any], copies: int = 1) -> list[str]:
        """Deliver an event as EventBridge would; the functions it reaches."""
        sent = self._control("aws", "POST", f"events?copies={copies}", event)["sent"]
        return [function for entry in sent for function in entry["functions"]]

    def schedules(self) -> list[dict[str, Any]]:
        """What is scheduled: `name`, `arn`, `expression`, and when it is `due` (ISO 8601)."""
        found: list[dict[str, Any]] = self._control("aws", "GET", "schedules")["schedules"]
        return found

    def fire(self, schedule: str) -> list[str]:
        """Let a schedule, by name or ARN, invoke its target now; the functions it reaches."""
        fired: list[str] = self._control("aws", "POST", "schedules/fire", {"name": schedule})[
            "functions"
        ]
        return fired

    def set_schedule_speed(self, speed: float) -> None:
        """Let schedules tick so many times as fast as life; 0: only when they are fired."""
        self._control("aws", "PUT", "schedules", {"speed": speed})

    def throttle(self, *, enabled: bool, share: float = 1) -> None:
        """Whether EC2 and Auto Scaling limit rates by AWS's bucket numbers, of which others in the
        account leave this share."""
        self._control("aws", "PUT", "throttle", {"enabled": enabled, "share": share})

    def instance_of(self, node: str) -> str | None:
        """The id of the instance that has a node's name, or None."""
        by_name = [{"Name": "private-dns-name", "Values": [node]}]
        found = client("ec2", self.aws_url).describe_instances(Filters=by_name)["Reservations"]
        return str(found[0]["Instances"][0]["InstanceId"]) if found else None

    def interrupt(
        self,
        instances: Sequence[str],
        *,
        late: float = 0.0,
        early: float = 0.0,
        copies: int = 1,
        action: str = "terminate",
        rebalance: bool = False,
        warning: bool = True,
        reservation: bool = False,
    ) -> list[dict[str, Any]]:
        """Let EC2 take instances back, two minutes after the time in their warnings.

        Args:
            instances: their ids.
            late: how many seconds in the past that time lies; in the future where negative.
            early: how many seconds before the two minutes are over EC2 takes them.
            copies: how often a warning is delivered; 0: it is lost.
            action: terminate, stop or hibernate.
            rebalance: whether the recommendation comes first.
            warning: whether anything comes but the recommendation.
            reservation: warn as of a capacity reservation's instances.

        Returns:
            For each the `instance`, the warning's id (`event`) and the epoch second of the reclaim
            (`reclaim_at`), both None without a warning.
        """
        body = {
            "instance": list(instances),
            "late": late,
            "copies": copies,
            "action": action,
            "rebalance": rebalance,
            "reservation": reservation,
            "warning": 120 - early if warning else None,
        }
        begun: list[dict[str, Any]] = self._control("aws", "POST", "interrupt", body)[
            "interruptions"
        ]
        return begun

    def maintain(
        self,
        instance: str,
        code: str = "instance-retirement",
        *,
        within: float,
        event: str = "",
        over: str = "",
    ) -> str:
        """Let EC2 schedule an event for an instance, so many seconds ahead; EC2's id for it. With
        that id, `[Completed]` or `[Canceled]` is what becomes of it.

        Nobody is told: AWS Health's event is for `send`.
        """
        body = {"instance": instance, "code": code, "starts_in": within}
        body |= {"event": event, "over": over}
        return str(self._control("aws", "POST", "maintenance", body)["event"])

    def impair(self, instance: str, check: str = "system", *, lasts: float | None = 0) -> None:
        """Let a status check of an instance (`instance`, `system`, `attached-ebs`) fail, for so
        many seconds already; None lets it pass again. EC2 sends no event of that."""
        body = {"instance": instance, "check": check, "lasts": lasts}
        self._control("aws", "POST", "impair", body)

    def report(self, instance: str, state: str, node: Mapping[str, Any] | None = None) -> None:
        """ReportProgress the cluster, and not EC2, that an instance is `running` as this Node, or `stopped`:
        its kubelet is dead."""
        body = {"instance": instance, "state": state, "node": node, "join": 0}
        self._control("kubernetes", "POST", "instances", body)

    def _control(self, part: str, method: str, path: str, body: Any = None) -> Any:
        url = f"{self._controls[part]}/_sandbox/{path}"
        try:
            # Headers of a request would take the place of the pool's, which have the token.
            headers = {**self._http.headers, "Content-Type": "application/json"}
            data = None if body is None else json.dumps(body)
            answer = self._http.request(method, url, body=data, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise SandboxError(f"the sandbox's {part} does not answer: {error}") from error
        answer_text = _error_text(answer.data)
        if 400 <= answer.status < 500:
            raise RefusedError(f"the sandbox's {part} refuses: {answer_text}")
        if answer.status >= 300:
            raise SandboxError(f"the sandbox's {part} answered {answer.status}: {answer_text}")
        return answer.json()


def _error_text(data: bytes) -> str:
    """What an answer says is wrong: the words of `{"error": WORDS}`, or all of it."""
    text = data.decode(errors="replace")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    error = document.get("error", text) if isinstance(document, dict) else text
    return str(error)[:300]


def _at(host: str, url: str) -> str:
    """The URL as it is reached by another name of this host."""
    return f"http://{host}:{urlsplit(url).port}"


@contextmanager
def _state_lock(state_dir: Path) -> Iterator[None]:
    """Hold the folder's lock: the kernel lets go of it however this process ends."""
    with (state_dir / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(f"a sandbox runs already with its state in {state_dir}") from None
        yield


def is_running(state_dir: Path) -> bool:
    """Whether a process holds the folder's lock."""
    try:
        with _state_lock(state_dir):
            return False
    except SandboxError:
        return True


class ReadyCounts:
    """Which nodes are Ready and which pods run, by the journal's entries in their order."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._pods: set[str] = set()

    @property
    def ready(self) -> int:
        """How many nodes are Ready."""
        return len(self._nodes)

    @property
    def running(self) -> int:
        """How many pods run."""
        return len(self._pods)

    def update(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Take in what came after what is known."""
        for entry in entries:
            match entry["kind"]:
                case "node-ready":
                    self._nodes.add(entry["node"])
                case "node-gone":
                    self._nodes.discard(entry["node"])
                case "pod-running":
                    self._pods.add(entry["uid"])
                case "pod-ended":
                    self._pods.discard(entry["uid"])
