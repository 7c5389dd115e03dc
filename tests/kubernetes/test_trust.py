"""Accepted and refused certificates of API servers, with real TLS on loopback."""

import base64
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import boto3
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.eks import eks_connection
from leeway.ports.aws import ClusterEndpoint
from leeway.ports.kubernetes import ClusterUnavailable
from leeway_cli.kubeconfig import kubeconfig_connection

LIFETIME = timedelta(days=1)


class Authority:
    """A certificate authority of an old cluster: its certificates have no key identifiers."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        signed = (
            self._builder(self._name, self._key)
            .add_extension(basic, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = signed.public_bytes(serialization.Encoding.PEM).decode()

    def server(self, folder: Path, address: str, age: timedelta = timedelta(0)) -> ssl.SSLContext:
        """Return the TLS side of a server with a certificate for this address."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        signed = (
            self._builder(name, key, age)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = folder / "server.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + signed.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, age: timedelta = timedelta(0)
    ) -> x509.CertificateBuilder:
        begins = datetime.now(UTC) - timedelta(minutes=1) - age
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=begins,
            not_valid_after=begins + LIFETIME,
        )


class Answers(BaseHTTPRequestHandler):
    """Answers every request with an empty list of nodes."""

    def do_GET(self) -> None:
        body = b'{"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class Quiet(ThreadingHTTPServer):
    """A server that does not print handshakes that its clients abort. It ends the first `dropped`
    connections before their handshakes."""

    dropped = 0

    def verify_request(self, request: object, client_address: object) -> bool:
        """Return whether a connection is served."""
        self.dropped -= 1
        return self.dropped < 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(context: ssl.SSLContext, dropped: int = 0) -> Iterator[str]:
    """Run an API server with this certificate; returns its address."""
    server = Quiet(("127.0.0.1", 0), Answers)
    server.dropped = dropped
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(params=["eks", "kubeconfig-data", "kubeconfig-file"])
def how(request: pytest.FixtureRequest) -> str:
    """Return the base64 certificate of the authority."""
    name: str = request.param
    return name


def connect(how: str, url: str, authority: str, folder: Path) -> Connection:
    encoded = base64.b64encode(authority.encode()).decode()
    if how == "eks":
        session = boto3.Session("a", "b", region_name="us-east-1")
        return eks_connection(ClusterEndpoint("old", url, encoded), session)
    file = folder / "ca.crt"
    file.write_text(authority)
    trusted = {"certificate-authority-data": encoded}
    if how == "kubeconfig-file":
        trusted = {"certificate-authority": str(file)}
    content = {
        "clusters": [{"name": "old", "cluster": {"server": url, **trusted}}],
        "users": [{"name": "old", "user": {"token": "t"}}],
        "contexts": [{"name": "old", "context": {"cluster": "old", "user": "old"}}],
        "current-context": "old",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return kubeconfig_connection(path)


def ask(connection: Connection) -> int:
    with contextlib.closing(connection):
        return connection.call(lambda c: c.plain.get("/api/v1/nodes")).status_code


def test_a_certificate_without_an_authority_key_identifier_is_accepted(
    how: str, tmp_path: Path
) -> None:
    authority = Authority()
    with serving(authority.server(tmp_path, "127.0.0.1")) as url:
        assert ask(connect(how, url, authority.pem, tmp_path)) == 200


def test_a_certificate_for_another_host_is_refused(how: str, tmp_path: Path) -> None:
    authority = Authority()
    with (
        serving(authority.server(tmp_path, "127.0.0.2")) as url,
        pytest.raises(ClusterUnavailable, match="mismatch"),
    ):
        ask(connect(how, url, authority.pem, tmp_path))


def test_a_certificate_of_another_authority_is_refused(how: str, tmp_path: Path) -> None:
    with (
        serving(Authority().server(tmp_path, "127.0.0.1")) as url,
        pytest.raises(ClusterUnavailable, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        ask(connect(how, url, Authority().pem, tmp_path))


def test_a_certificate_that_has_expired_is_refused(how: str, tmp_path: Path) -> None:
    authority = Authority()
    with (
        serving(authority.server(tmp_path, "127.0.0.1", age=2 * LIFETIME)) as url,
        pytest.raises(ClusterUnavailable, match="expired"),
    ):
        ask(connect(how, url, authority.pem, tmp_path))


def test_a_connection_that_ends_before_its_handshake_is_opened_once_more(tmp_path: Path) -> None:
    authority = Authority()
    context = authority.server(tmp_path, "127.0.0.1")
    with serving(context, dropped=1) as url:
        assert ask(connect("eks", url, authority.pem, tmp_path)) == 200
    with serving(context, dropped=2) as url, pytest.raises(ClusterUnavailable, match="Connect"):
        ask(connect("eks", url, authority.pem, tmp_path))


def test_tls_errors_do_not_name_lines_of_pythons_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    with (
        serving(Authority().server(tmp_path, "127.0.0.1")) as url,
        pytest.raises(ClusterUnavailable) as refused,
    ):
        ask(connect("eks", url, authority.pem, tmp_path))
    assert "certificate verify failed" in str(refused.value)
    assert "_ssl" not in str(refused.value)
    monkeypatch.setattr("leeway.kubernetes.connection.TIMEOUT", httpx2.Timeout(5.0, connect=0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterUnavailable) as late:
            ask(connect("eks", url, authority.pem, tmp_path))
    assert str(late.value) == (
        f"no answer from {url}: ConnectTimeout: The handshake operation timed out"
    )
