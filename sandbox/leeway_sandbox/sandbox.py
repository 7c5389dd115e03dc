"""Starts a whole sandbox, from its three processes to running pods; controls it; stops it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import yaml

from leeway_sandbox.access import bearer, check_address, read_token
from leeway_sandbox.access_entries import access_entries, access_key
from leeway_sandbox.children import Child, stop_all
from leeway_sandbox.control import Controls, ReadyCounts
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.installed import ROOT, check_installed
from leeway_sandbox.provisioning import (
    NODE_ROLE_ARN,
    client,
    create_workloads,
    credentials,
    kubeconfig,
    provision_aws,
)
from leeway_sandbox.scenario import Scenario
from leeway_sandbox.startup import (
    TOKEN_FILE,
    Endpoints,
    Startup,
    bypass_proxies,
    proxy_exceptions,
    published,
    read_endpoints,
    state_lock,
)

if TYPE_CHECKING:
    from leeway_sandbox.real_cluster.target import RealCluster
    from leeway_sandbox.template import DeployedTemplate

__all__ = ["Endpoints", "Sandbox", "SandboxError"]

READY_TIMEOUT, READY_TIMEOUT_PER_OBJECT = 90.0, 0.05  # seconds; the second: each object
PARTS = ("kubernetes", "aws", "lambda")

# Called with (current step, items done, items in total); the total is None if it is not known.
ReportProgress = Callable[[str, int, int | None], None]


class Sandbox:
    """A running sandbox: its endpoints, its journals, and its control APIs."""

    def __init__(self, state_dir: Path, endpoints: Endpoints) -> None:
        self.state_dir = state_dir
        self.endpoints = endpoints
        urls = (endpoints.kubernetes_control, endpoints.aws, endpoints.lambda_)
        token = read_token(state_dir / TOKEN_FILE)
        self._controls = Controls(dict(zip(PARTS, urls, strict=True)), bearer(token))
        self._control = self._controls.call
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
        real: "RealCluster | None" = None,
        report_progress: ReportProgress = lambda _what, _done, _total: None,
    ) -> Iterator[Self]:
        """Run a sandbox with a scenario while the context lasts.

        Args:
            scenario: the node groups and workloads to create.
            state_dir: the folder of kubeconfig, certificates, logs, and the file `attach` reads.
            host: one more address at which the servers listen, besides 127.0.0.1.
            advertise: the name or IP address at which functions reach the sandbox. The endpoint in
                DescribeCluster has it, and the certificate is valid for it.
            template: the template to deploy.
            build: SAM's build folder, to run the result of `sam build` instead of the source tree.
            parameters: parameters of the template, which override its defaults.
            options: more arguments for the processes, by part (`kubernetes`, `aws`, `lambda`,
                `autoscaler`).
            grow: whether to run the node autoscaler.
            real: the cluster that is used instead of the sandbox's own Kubernetes. The scenario has
                as many nodes as it.
            report_progress: called with each step of the start and its progress.

        Raises:
            RefusedError: the host is every interface of this machine, or a namespace of an earlier
                sandbox in the real cluster does not end.
            SandboxError: the folder cannot be created, a process did not start, or nodes or pods
                did not become ready in time.
            NotInstalledError: a package of the extra `sandbox` is missing.
        """
        check_installed()
        check_address(host)
        if real is not None:
            real.wait_for_namespaces(lambda what: report_progress(what, 0, None))
        bypass_proxies(advertise)
        try:
            state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            why = f"The folder {state_dir} cannot be created: {error.strerror}."
            raise SandboxError(why) from error
        children: list[Child] = []
        with ExitStack() as stack:
            stack.enter_context(state_lock(state_dir))
            stack.callback(stop_all, children)
            report_progress("starting its processes", 0, None)
            startup = Startup(
                state_dir, scenario, host, advertise, dict(options or {}), children, real
            )
            endpoints = startup.run(template)
            sandbox = cls(state_dir, endpoints)
            stack.callback(sandbox.close)
            if real is not None:
                stack.callback(sandbox.leave_cluster)
            sandbox._create(scenario, template, parameters or {}, build, report_progress)
            if grow:
                startup.autoscaler(endpoints.aws, sandbox.kubeconfig)
            sandbox.wait_for(scenario.nodes, scenario.pods, report_progress)
            stack.enter_context(published(state_dir, sandbox.endpoints))
            yield sandbox

    def _create(
        self,
        scenario: Scenario,
        template: Path,
        parameters: Mapping[str, str],
        build: Path | None,
        report_progress: ReportProgress,
    ) -> None:
        """Create the instances of a scenario, deploy the template, then create the workloads."""
        report_progress("launching instances", 0, None)
        foreign_instances = provision_aws(scenario, self.aws_url)
        self.endpoints = replace(self.endpoints, foreign_instances=foreign_instances)
        report_progress("deploying template.yaml", 0, None)
        self.deploy(template, parameters, build)
        # Workloads come last: with the first node alone, all pods would run on that node.
        self.wait_for(scenario.nodes, 0, report_progress)
        report_progress("creating workloads", 0, None)
        create_workloads(scenario.workloads, self.write_kubeconfig())

    @classmethod
    def attach(cls, state_dir: Path) -> Self:
        """Return the sandbox that runs with this folder; SandboxError if none runs."""
        return cls(state_dir, read_endpoints(state_dir))

    def close(self) -> None:
        """Close the connections to its control APIs."""
        self._controls.close()

    @property
    def aws_url(self) -> str:
        """The endpoint of all AWS services except Lambda."""
        return self.endpoints.aws

    @property
    def lambda_url(self) -> str:
        """The endpoint of Lambda."""
        return self.endpoints.lambda_

    @property
    def kubernetes_url(self) -> str:
        """The endpoint of the cluster's API."""
        return self.endpoints.kubernetes

    @property
    def kubeconfig(self) -> Path:
        """The path of a kubeconfig with the admin token."""
        return self.state_dir / "kubeconfig"

    def environment(self) -> dict[str, str]:
        """Return the environment variables for AWS SDKs, AWS CLIs and Leeway's command line.

        The name of Leeway's table is there only if this process started the sandbox.
        """
        found = credentials(self.aws_url, self.lambda_url) | proxy_exceptions(
            self.endpoints.advertise
        )
        if self.deployed:
            (table,) = self.deployed.tables
            found["LEEWAY_TABLE"] = table.name
        return found

    def deploy(self, template: Path, parameters: Mapping[str, str], build: Path | None) -> None:
        """Deploy the template as CloudFormation does, for this cluster and its node role."""
        from leeway_sandbox.deployment import deploy
        from leeway_sandbox.template import declared_parameters, read_template

        defaults = {"ClusterNames": self.endpoints.cluster, "NodeRoleArns": NODE_ROLE_ARN}
        declared = declared_parameters(template)
        given = {name: value for name, value in defaults.items() if name in declared}
        try:
            self.deployed = read_template(template, {**given, **parameters}, build=build)
            deploy(self.deployed, self.aws_url, self.lambda_url, self._controls.headers)
            stack = self.deployed.stack
            callers = {
                access_key(one.name): stack.roles[one.role].name
                for one in self.deployed.functions
                if one.role
            }
            self._control("aws", "POST", "stacks", {**stack.model_dump(), "callers": callers})
            entries = access_entries(self.deployed, self.endpoints.cluster, NODE_ROLE_ARN)
            self._control("aws", "PUT", "access", entries)
        except SandboxError as error:
            raise SandboxError(f"{template}: {error}") from error

    def sam_environment(self) -> dict[str, dict[str, str]]:
        """Return the content of `sam local invoke --env-vars`: variables by logical id.

        It is empty unless this process started the sandbox.
        """
        host = self.endpoints.advertise
        outside = credentials(*(_at(host, url) for url in (self.aws_url, self.lambda_url)))
        functions = self.deployed.functions if self.deployed else ()
        return {function.logical_id: {**function.environment, **outside} for function in functions}

    def write_kubeconfig(self) -> dict[str, Any]:
        """Write `kubeconfig`, readable only by its owner, and return its content."""
        ends = self.endpoints
        config = kubeconfig(ends.cluster, ends.kubernetes, ends.ca, ends.token)
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config, sort_keys=False))
        return config

    def wait_for(self, nodes: int, pods: int, report_progress: ReportProgress) -> None:
        """Wait until this many nodes are Ready and this many pods run."""
        timeout = READY_TIMEOUT + READY_TIMEOUT_PER_OBJECT * (nodes + pods)
        deadline = time.monotonic() + timeout
        counts = ReadyCounts()
        counts.update(self.journal())
        while counts.ready < nodes or counts.running < pods:
            ready, running = counts.ready, counts.running
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"The cluster was not ready after {timeout:.0f} s: {ready} of {nodes} nodes are"
                    f" Ready, {running} of {pods} pods run. Start fewer nodes with --nodes, or read"
                    " the logs in the state folder."
                )
            now = f"{ready} of {nodes} nodes Ready, {running} of {pods} pods running"
            report_progress(now, ready + running, nodes + pods)
            time.sleep(0.2)
            counts.update(self._controls.new_entries())

    def journal(self) -> list[dict[str, Any]]:
        """Return the journal entries of all processes, oldest first."""
        return self._controls.journal()

    def status(self) -> dict[str, Any]:
        """Return the status of each part."""
        return {part: self._control(part, "GET", "status") for part in PARTS}

    def faults(self, part: str, faults: Sequence[Mapping[str, Any]]) -> None:
        """Replace the faults of a part (`kubernetes`, `aws` or `lambda`)."""
        self._control(part, "PUT", "faults", {"faults": list(faults)})

    def send(self, event: Mapping[str, Any], copies: int = 1) -> list[str]:
        """Deliver an event as EventBridge does; return the functions that get it."""
        sent = self._control("aws", "POST", f"events?copies={copies}", event)["sent"]
        return [function for entry in sent for function in entry["functions"]]

    def schedules(self) -> list[dict[str, Any]]:
        """Return the schedules: `name`, `arn`, `expression`, and the next `due` time (ISO 8601)."""
        found: list[dict[str, Any]] = self._control("aws", "GET", "schedules")["schedules"]
        return found

    def fire(self, schedule: str) -> list[str]:
        """Run a schedule, by name or ARN, now; return the functions that it invokes."""
        fired: list[str] = self._control("aws", "POST", "schedules/fire", {"name": schedule})[
            "functions"
        ]
        return fired

    def set_schedule_speed(self, speed: float) -> None:
        """Set how many times faster than real time schedules run; 0: only by `fire`."""
        self._control("aws", "PUT", "schedules", {"speed": speed})

    def throttle(self, *, enabled: bool, share: float = 1) -> None:
        """Turn the request limits of EC2 and Auto Scaling on or off.

        `share` is the part of AWS's bucket sizes that other clients of the account leave.
        """
        self._control("aws", "PUT", "throttle", {"enabled": enabled, "share": share})

    def instance_of(self, node: str) -> str | None:
        """Return the id of the instance with this node name, or None."""
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
        """Let EC2 interrupt instances, two minutes after the time in their warnings.

        Args:
            instances: the instance ids.
            late: how many seconds ago the time of the warning is; in the future if negative.
            early: how many seconds before the end of the two minutes EC2 acts.
            copies: how often each warning is delivered; 0: it is lost.
            action: terminate, stop or hibernate.
            rebalance: whether to send a rebalance recommendation first.
            warning: whether to send the warning and to interrupt the instances.
            reservation: whether to send the warning of a capacity reservation.

        Returns:
            For each instance its id (`instance`), the id of the warning (`event`) and the epoch
            second of the interruption (`reclaim_at`); the last two are None without a warning.
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
        """Let EC2 schedule an event for an instance, `within` seconds; return its event id.

        With that id as `event`, `over` sets the outcome: `[Completed]` or `[Canceled]`. EC2 sends
        no EventBridge event; use `send` for the event of AWS Health.
        """
        body = {"instance": instance, "code": code, "starts_in": within}
        body |= {"event": event, "over": over}
        return str(self._control("aws", "POST", "maintenance", body)["event"])

    def reserve(self, instance_type: str, zone: str, **given: Any) -> str:
        """Create a capacity reservation, or a Capacity Block, and return its id. `given` are the
        other fields of a `NewReservation`."""
        body = {"instance_type": instance_type, "zone": zone, **given}
        return str(self._control("aws", "POST", "reservations", body)["reservation"])

    def end_reservation(self, reservation: str, ends_in: float, *, warns: bool = True) -> None:
        """Let a reservation end in `ends_in` seconds. A Capacity Block then `warns`, or the warning
        is lost."""
        body = {"reservation": reservation, "ends_in": ends_in, "warns": warns}
        self._control("aws", "POST", "reservations/end", body)

    def impair(self, instance: str, check: str = "system", *, lasts: float | None = 0) -> None:
        """Let a status check of an instance (`instance`, `system`, `attached-ebs`) fail.

        The check has failed for `lasts` seconds; None: it passes again. EC2 sends no event.
        """
        body = {"instance": instance, "check": check, "lasts": lasts}
        self._control("aws", "POST", "impair", body)

    def report(self, instance: str, state: str, node: Mapping[str, Any] | None = None) -> None:
        """Report to the cluster, and not to EC2, that an instance is `running` as this Node.

        With the state `stopped` its kubelet is dead.
        """
        body = {"instance": instance, "state": state, "node": node, "join": 0}
        self._control("kubernetes", "POST", "instances", body)

    def leave_cluster(self) -> None:
        """Take what the sandbox has put into a real cluster out of it again."""
        self._control("kubernetes", "POST", "leave")


def _at(host: str, url: str) -> str:
    """Return the URL with another host name."""
    return f"http://{host}:{urlsplit(url).port}"
