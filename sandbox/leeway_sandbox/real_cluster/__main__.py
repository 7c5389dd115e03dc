"""Links a real cluster to a sandbox until it ends: `python -m leeway_sandbox.real_cluster`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

import httpx2 as httpx

from leeway_sandbox import access
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.kubernetes.servers import server_context
from leeway_sandbox.process import exit_on_errors, report_ready, wait_for_stop
from leeway_sandbox.real_cluster.servers import Servers
from leeway_sandbox.real_cluster.target import RealCluster, read_config
from leeway_sandbox.real_cluster.upstream import RefusedRequestError, Upstream


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m leeway_sandbox.real_cluster", description=__doc__
    )
    access.arguments(parser)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--san", action="append", default=[], metavar="NAME_OR_IP")
    parser.add_argument("--rbac", type=Path, required=True, help="folder with access rules")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--context", required=True)
    parser.add_argument("--node", action="append", default=[], help="a Node to use (repeatable)")
    parser.add_argument("--join-command", default="")
    parser.add_argument("--leave-command", default="")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    cluster = RealCluster(
        arguments.kubeconfig,
        arguments.context,
        tuple(arguments.node),
        arguments.join_command,
        arguments.leave_command,
    )
    config = read_config(cluster.kubeconfig, cluster.context)
    tls = server_context(arguments.certificate, arguments.san)
    gate = access.Gate.of(arguments, "/")
    async with Upstream(config) as upstream:
        servers = Servers(cluster, upstream, arguments.rbac, tls, gate)
        try:
            addresses = await servers.start(arguments.host, arguments.port)
            report_ready(
                port=addresses.port,
                url=f"https://127.0.0.1:{addresses.port}",
                ca=str((arguments.certificate / "ca.crt").resolve()),
                token=addresses.token,
                control=f"http://127.0.0.1:{addresses.control_port}",
            )
            await wait_for_stop()
        except (httpx.HTTPError, RefusedRequestError) as error:
            server = config.cluster.server
            raise SandboxError(
                f"The API server {server} does not do what the sandbox needs: {error}. The user "
                "of the kubeconfig needs the rights of cluster-admin: to impersonate, and to "
                "create ClusterRoles."
            ) from error
        finally:
            await servers.stop()


def main() -> None:
    """Run until SIGTERM, SIGINT, or the exit of the process that started this one."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="cluster %(levelname)s %(message)s"
    )
    with exit_on_errors():
        asyncio.run(_serve(_arguments()))


if __name__ == "__main__":
    main()
