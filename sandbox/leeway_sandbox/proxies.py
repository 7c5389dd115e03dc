"""Lets clients of the sandbox bypass a proxy of the environment."""

import os
from urllib.request import getproxies_environment

OWN = ("127.0.0.1", "localhost")


def proxy_exceptions(*hosts: str) -> dict[str, str]:
    """Return the variables that let clients reach these hosts and this machine without the proxy.

    Empty if the environment has no proxy. Existing exceptions are kept.
    """
    named = getproxies_environment()
    exceptions = [host for host in named.pop("no", "").split(",") if host.strip()]
    if not named or exceptions == ["*"]:
        return {}
    value = ",".join(dict.fromkeys([*exceptions, *OWN, *hosts]))
    # Some clients read the first one, others the second one.
    return {"NO_PROXY": value, "no_proxy": value}


def bypass_proxies(*hosts: str) -> None:
    """Set these variables in this process and for its child processes."""
    os.environ.update(proxy_exceptions(*hosts))
