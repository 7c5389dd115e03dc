"""Keeps what talks to the sandbox away from a proxy that the environment names."""

import os
from urllib.request import getproxies_environment

OWN = ("127.0.0.1", "localhost")


def proxy_exceptions(*hosts: str) -> dict[str, str]:
    """The variables by which clients reach these hosts and this machine without the proxy that the
    environment names; none where it names none. Others' exceptions stay."""
    named = getproxies_environment()
    exceptions = [host for host in named.pop("no", "").split(",") if host.strip()]
    if not named or exceptions == ["*"]:
        return {}
    value = ",".join(dict.fromkeys([*exceptions, *OWN, *hosts]))
    # Clients differ in which of the two they read.
    return {"NO_PROXY": value, "no_proxy": value}


def bypass_proxies(*hosts: str) -> None:
    """Do so in this process, and in all that it starts."""
    os.environ.update(proxy_exceptions(*hosts))
