"""Serves one cluster until it is stopped: `python -m leeway_sandbox.kubernetes`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from leeway_sandbox import access
from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Settings
from leeway_sandbox.kubernetes.servers import Servers, server_context
from leeway_sandbox.process import exit_on_errors, report_ready, wait_for_stop


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m leeway_sandbox.kubernetes", description=__doc__
    )
    access.arguments(parser)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--cluster-name", default="sandbox", dest="name")
    parser.add_argument("--certificate", type=Path, help="folder of ca.crt, tls.crt and tls.key")
    parser.add_argument(
        "--san",
        action="append",
        default=[],
        metavar="NAME_OR_IP",
        help="one more name of the certificate (repeatable)",
    )
    parser.add_argument("--rbac", type=Path, help="file or folder with access rules")
    parser.add_argument(
        "--without-admission-policies",
        action="store_true",
        help="have no ValidatingAdmissionPolicies, as Kubernetes before 1.30",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--initial-nodes",
        type=int,
        default=0,
        metavar="NODES",
        help="number of nodes that join without a delay",
    )
    parser.add_argument("--pod-start", type=float, default=1.0, help="seconds, ± a fifth")
    parser.add_argument(
        "--pod-end", type=float, default=0.5, help="seconds, unless the pod sets it"
    )
    parser.add_argument("--node-join", type=float, default=4.0, help="seconds, ± a fifth")
    parser.add_argument("--node-ready", type=float, default=1.0, help="seconds after joining")
    parser.add_argument("--volume-attach", type=float, default=1.0, help="seconds")
    parser.add_argument(
        "--node-removal", type=float, default=3.0, help="seconds after its instance has ended"
    )
    parser.add_argument(
        "--pod-quarantine",
        type=float,
        default=40.0,
        help="seconds until pods without a Node are deleted",
    )
    parser.add_argument(
        "--grant-expiry",
        type=float,
        default=120.0,
        help="seconds after which a budget's disruptedPods drops a pod that was not deleted",
    )
    parser.add_argument(
        "--budget-write",
        type=float,
        default=0.005,
        help="seconds in which an eviction reads and writes its budget",
    )
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace, folder: Path) -> None:
    given = vars(arguments)
    names = {field.name for field in dataclasses.fields(Settings)} & given.keys()
    settings = Settings(**{name: given[name] for name in names})
    tls = server_context(folder, arguments.san)
    gate = access.Gate.of(arguments, "/")  # for the port of the control API
    if arguments.without_admission_policies:
        registry.remove(*registry.ADMISSION_POLICIES)
    serving = Servers(settings, arguments.host, folder / "ca.crt", tls, arguments.rbac, gate)
    addresses = await serving.start(arguments.port)
    report_ready(
        port=addresses.port,
        url=f"https://127.0.0.1:{addresses.port}",
        ca=str(addresses.ca.resolve()),
        token=addresses.token,
        control=f"http://127.0.0.1:{addresses.control_port}",
    )
    await wait_for_stop()
    await serving.stop()


def load() -> None:
    """Import what the first admission policy needs."""
    import_module("cel")


def main() -> NoReturn:
    """Run until SIGTERM, SIGINT, or the exit of the process that started this one."""
    arguments = _arguments()
    # The objects have no reference cycles, so frequent garbage collections only cost time.
    gc.set_threshold(100_000, 50, 100)
    with exit_on_errors(), tempfile.TemporaryDirectory(prefix="leeway-kubernetes-") as temporary:
        asyncio.run(_serve(arguments, arguments.certificate or Path(temporary)))
    # There is no state to save, and to free a million objects takes longer than the stop timeout.
    os._exit(0)


if __name__ == "__main__":
    main()
