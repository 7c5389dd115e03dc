"""The names of the API's certificate, with which clients can verify it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import time_machine
from cryptography import x509
from leeway_sandbox.kubernetes.servers import server_context

from tests.sandbox.kubernetes.live import Live, running_cluster


def names(folder: Path) -> set[str]:
    """The names of the server certificate."""
    certificate = x509.load_pem_x509_certificate((folder / "tls" / "tls.crt").read_bytes())
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(name.value) for name in extension.value}


def ask_as(name: str, live: Live) -> int:
    """The status of a request by a client that expects the server name `name`."""
    with httpx.Client(verify=ssl.create_default_context(cafile=live.ca)) as client:
        extensions = {"sni_hostname": name}
        return client.get(f"{live.url}/readyz", extensions=extensions).status_code


def test_a_cluster_is_reached_by_its_additional_names_and_addresses(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path, "--san", "192.0.2.7", "--san", "cluster.example") as live:
        assert [ask_as(name, live) for name in ("192.0.2.7", "cluster.example")] == [200, 200]
        assert [ask_as(name, live) for name in ("127.0.0.1", "localhost")] == [200, 200]
        with pytest.raises(httpx.ConnectError, match="IP address mismatch"):
            ask_as("192.0.2.8", live)


def test_a_certificate_is_kept_until_it_lacks_a_name(tmp_path: Path) -> None:
    certificate = tmp_path / "tls" / "tls.crt"
    with running_cluster(tmp_path, "--san", "192.0.2.7"):
        first = certificate.read_bytes()
    with running_cluster(tmp_path, "--san", "127.0.0.1"):
        assert certificate.read_bytes() == first
    with running_cluster(tmp_path, "--san", "192.0.2.8") as live:
        assert "192.0.2.8" in names(tmp_path)
        assert ask_as("192.0.2.8", live) == 200


def test_a_certificate_in_its_last_day_is_replaced(tmp_path: Path) -> None:
    with time_machine.travel(datetime.now(UTC) - timedelta(days=29.5)):
        server_context(tmp_path / "tls")
    old = (tmp_path / "tls" / "ca.crt").read_bytes()
    with running_cluster(tmp_path) as live:
        assert Path(live.ca).read_bytes() != old
        assert ask_as("localhost", live) == 200
