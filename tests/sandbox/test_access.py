"""Control calls need the control token and an allowed Host header."""

import http.client
import json
import stat
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from leeway_cli import main
from leeway_sandbox.access import Gate, check_address, new_token, read_token
from leeway_sandbox.containers import bridge_address
from leeway_sandbox.errors import RefusedError, SandboxError
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario

NAMES = ("status", "journal", "faults", "functions")
FORMS = (
    "/status",
    "//_sandbox/status",
    "/_sandbox//status",
    "/_sandbox%2fstatus",
    "/_sandbox%2Fstatus",
    "/%5fsandbox/status",
    "/%255fsandbox/status",
    "/x/../_sandbox/status",
    "/./_sandbox/status",
    "/_SANDBOX/status",
    "http://127.0.0.1/_sandbox/status",
)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox without nodes, with a second address that it advertises."""
    folder = tmp_path_factory.mktemp("sandbox")
    with Sandbox.start(
        Scenario("empty", groups=()), state_dir=folder, host="127.0.0.2", advertise="sandbox.test"
    ) as started:
        yield started


def controls(sandbox: Sandbox) -> dict[str, str]:
    """Return the URL of each part's control API."""
    ends = sandbox.endpoints
    return {"aws": ends.aws, "lambda": ends.lambda_, "kubernetes": ends.kubernetes_control}


def test_every_control_call_needs_the_token(sandbox: Sandbox) -> None:
    with httpx.Client(timeout=60) as client:
        for part, name in product(controls(sandbox).values(), NAMES):
            url = f"{part}/_sandbox/{name}"
            for method in ("GET", "PUT", "POST"):
                assert client.request(method, url, json={}).status_code == 401, (method, url)
            wrong = {"Authorization": "Bearer wrong"}
            assert client.get(url, headers=wrong).status_code == 401, url


def test_no_form_of_a_path_bypasses_the_token(sandbox: Sandbox) -> None:
    for url, path in product(controls(sandbox).values(), FORMS):
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            result = answer.read()
        finally:
            connection.close()
        for word in (b'"nodes"', b'"functions"', b'"links"'):
            assert word not in result, (url, path, answer.status, result)


def test_registering_code_needs_the_token(sandbox: Sandbox, tmp_path: Path) -> None:
    before = sandbox.status()["lambda"]["functions"]
    function = {"name": "mine", "arn": "arn:aws:lambda:us-east-1:123456789012:function:mine"}
    code = {"handler": "os.system", "code": [str(tmp_path)]}

    url = f"{sandbox.lambda_url}/_sandbox/functions"
    answer = httpx.put(url, json={"functions": [{**function, **code}]}, timeout=60)

    assert answer.status_code == 401
    assert "needs the control token" in answer.json()["error"]
    assert sandbox.status()["lambda"]["functions"].keys() == before.keys()


def test_the_api_of_moto_needs_the_token_too(sandbox: Sandbox) -> None:
    assert httpx.post(f"{sandbox.aws_url}/moto-api/reset", timeout=60).status_code == 401


def test_a_foreign_host_header_is_refused(sandbox: Sandbox) -> None:
    paths = ("/", "/_sandbox/status", "/2015-03-31/functions/x/invocations")
    with httpx.Client(timeout=60, headers={"Host": "evil.example:80"}) as client:
        for url, path in product(controls(sandbox).values(), paths):
            assert client.get(url + path).status_code == 421, url + path


def test_it_answers_at_both_addresses_and_with_the_advertised_name(sandbox: Sandbox) -> None:
    for url in (sandbox.aws_url, sandbox.lambda_url):
        port = url.rpartition(":")[2]
        for host in (f"127.0.0.2:{port}", f"sandbox.test:{port}", f"LOCALHOST:{port}"):
            answer = httpx.get(
                f"http://127.0.0.2:{port}/_sandbox/status", headers={"Host": host}, timeout=60
            )
            assert answer.status_code == 401
    port = sandbox.kubernetes_url.rpartition(":")[2]
    verify = False  # The certificate is not part of this test.
    assert httpx.get(f"https://127.0.0.2:{port}/healthz", verify=verify, timeout=60).text == "ok"


def test_the_runtime_api_is_only_for_the_loopback_address(sandbox: Sandbox) -> None:
    path = "/_runtime/echo-1/2018-06-01/runtime/invocation/next"
    port = sandbox.lambda_url.rpartition(":")[2]
    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(transport=transport, timeout=60) as client:
        answer = client.get(f"http://127.0.0.2:{port}{path}")
        assert (answer.status_code, answer.json()["error"][:12]) == (403, "Only workers")


def test_files_with_secrets_are_readable_only_by_their_owner(sandbox: Sandbox) -> None:
    for name in ("control-token", "sandbox.json", "kubeconfig", "certificate/tls.key"):
        mode = stat.S_IMODE((sandbox.state_dir / name).stat().st_mode)
        assert mode == 0o600, name
    token = (sandbox.state_dir / "control-token").read_text()
    assert token not in json.dumps([sandbox.environment(), sandbox.sam_environment()])
    logs = list(sandbox.state_dir.glob("*.log"))
    assert logs
    assert not any(token in log.read_text() for log in logs)


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert new_token(file) == read_token(file)
    file.chmod(0o640)

    with pytest.raises(SandboxError, match="mode 0640"):
        read_token(file)


EVERYWHERE = ["0.0.0.0", "::", "", "0", "0.0", "::ffff:0.0.0.0", "[::]"]  # noqa: S104


@pytest.mark.parametrize("host", EVERYWHERE)
def test_an_address_of_all_interfaces_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(RefusedError, match=r"interface|not an address"):
        check_address(host)
    with (
        pytest.raises(RefusedError),
        Sandbox.start(Scenario("empty", groups=()), state_dir=tmp_path / "no", host=host),
    ):
        pytest.fail("it started")


def test_up_reports_an_address_of_all_interfaces_as_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sandbox", "up", "--host", "0.0.0.0", "--state-dir", str(tmp_path)]  # noqa: S104

    assert main.run(command) == 2
    assert "every interface" in capsys.readouterr().err


def test_up_uses_the_given_address_or_that_of_the_bridge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sandbox", "up", "--for-containers", "--state-dir", str(tmp_path)]

    assert main.run([*command, "--host", "127.0.0.1"]) == 2
    assert "expected no --host" in capsys.readouterr().err


def test_up_without_docker_names_the_options_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")

    assert main.run(["sandbox", "up", "--for-containers", "--state-dir", str(tmp_path)]) == 2
    assert "Give --host and --advertise" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ({"Subnet": "172.17.0.0/16", "Gateway": "172.17.0.1"}, "172.17.0.1"),
        ({"Subnet": "10.88.0.0/16"}, "10.88.0.1"),
    ],
)
def test_the_address_of_the_bridge_is_read_from_docker(
    config: dict[str, str], address: str
) -> None:
    assert bridge_address(json.dumps([{"IPAM": {"Config": [config]}}])) == address


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example", "[", "a@b:c"])
def test_a_gate_accepts_only_its_own_names(host: str) -> None:
    gate = Gate("secret", ["172.17.0.1"])

    assert gate.refusal("/", {"Host": host}) is not None
    assert gate.refusal("/", {"Host": "172.17.0.1:80"}) is None
    assert gate.refusal("/", {"Host": "bucket.localhost"}) is None
