"""Authentication by EKS tokens, authorization by RBAC, and impersonation."""

from __future__ import annotations

import base64
import datetime
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.sandbox.kubernetes.live import PODS, Live, running_cluster
from tests.sandbox.kubernetes.recorded import Exchange, exchanges

_SECRET = "the-secret-of-all"
_ROLES = Path(__file__).parent / "roles.yaml"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Return a cluster that enforces RBAC, with one principal of each kind. One of them may
    impersonate only the user `reader`."""
    with running_cluster(tmp_path_factory.mktemp("guarded"), "--rbac", str(_ROLES)) as live:
        groups = {"drains": ["leeway:drain"], "counts": ["leeway:capacity"]}
        grant(live, **groups, **{"powerless": [], "stand-in": []})
        yield live


def grant(live: Live, **groups: list[str]) -> None:
    """Create access entries; the name is both the access key id and the user name."""
    entries = {
        name: {"username": name, "groups": granted, "secret": _SECRET}
        for name, granted in groups.items()
    }
    live.control.put("/_sandbox/access", json=entries).raise_for_status()


def eks_token(
    key: str = "drains",
    *,
    cluster: str = "sandbox",
    secret: str = "",
    host: str = "sts.us-east-1.amazonaws.com",
    action: str = "GetCallerIdentity",
    age: int = 0,
) -> str:
    """Presign GetCallerIdentity as an EKS client, this many seconds ago."""
    url = f"https://{host}/?Action={action}&Version=2011-06-15"
    headers = {"x-k8s-aws-id": cluster} if cluster else {}
    request = AWSRequest(method="GET", url=url, headers=headers)
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    request.context["timestamp"] = f"{then:%Y%m%dT%H%M%SZ}"
    signer = SigV4QueryAuth(
        Credentials(key, secret or _SECRET, "session"), "sts", "us-east-1", expires=60
    )
    # As `add_auth`, which always signs with the present time.
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(text, request))
    encoded = base64.urlsafe_b64encode(request.url.encode()).decode().rstrip("=")
    return f"k8s-aws-v1.{encoded}"


def status_with(live: Live, token: str, path: str = "/api/v1/nodes") -> int:
    """Return the status of a request with a token."""
    with live.client(token) as client:
        return client.get(path).status_code


def test_a_presigned_url_is_a_token(guarded: Live) -> None:
    assert status_with(guarded, eks_token()) == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "stranger"},
        {"cluster": ""},
        {"cluster": "another"},
        {"secret": "guessed"},
        {"action": "GetSessionToken"},
        {"host": "sts.example.com"},
        {"age": 15 * 60 + 5},
        {"age": -6 * 60},
    ],
    ids=str,
)
def test_a_token_that_sts_refuses_is_not_authenticated(
    guarded: Live, wrong: dict[str, Any]
) -> None:
    assert status_with(guarded, eks_token(**wrong)) == 401


def test_a_token_is_valid_for_fifteen_minutes_with_any_expiry(guarded: Live) -> None:
    assert status_with(guarded, eks_token(age=14 * 60)) == 200


def test_the_date_of_a_token_cannot_be_changed(guarded: Live) -> None:
    token = eks_token(age=20 * 60)
    url = base64.urlsafe_b64decode(token.removeprefix("k8s-aws-v1.") + "==").decode()
    old = url.partition("X-Amz-Date=")[2][:16]
    forged = url.replace(old, f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}")
    encoded = base64.urlsafe_b64encode(forged.encode()).decode().rstrip("=")

    assert status_with(guarded, f"k8s-aws-v1.{encoded}") == 401


@pytest.mark.parametrize("token", ["k8s-aws-v1.bm9uc2Vuc2U", "k8s-aws-v1.!", "k8s-aws-v1."])
def test_a_malformed_token_is_not_authenticated(guarded: Live, token: str) -> None:
    assert status_with(guarded, token) == 401


def test_groups_come_from_the_access_entries(guarded: Live) -> None:
    paths = ("/api/v1/nodes", "/api/v1/pods", "/apis/apps/v1/daemonsets")
    by_group = {
        key: [status_with(guarded, eks_token(key), path) for path in paths]
        for key in ("drains", "counts", "powerless")
    }

    assert by_group == {
        "drains": [200, 200, 403],
        "counts": [200, 403, 403],
        "powerless": [403, 403, 403],
    }


def test_an_invalid_access_entry_is_refused(guarded: Live) -> None:
    refused = guarded.control.put("/_sandbox/access", json={"key": ["leeway:drain"]})

    assert refused.status_code == 400
    assert status_with(guarded, eks_token()) == 200


@pytest.mark.parametrize(
    "exchange",
    [one for one in exchanges("discovery-and-access") if "without rights" in one.label],
    ids=lambda one: one.label,
)
def test_a_missing_verb_is_refused_as_recorded(guarded: Live, exchange: Exchange) -> None:
    recorded_as = json.loads(json.dumps(exchange.answer).replace("leeway", "powerless"))

    with guarded.client(eks_token("powerless")) as client:
        response = client.request(exchange.method, exchange.path, json=exchange.sent)

    assert response.status_code == exchange.status
    assert response.json() == recorded_as


def test_an_apply_of_a_missing_object_needs_the_permission_to_create_it(guarded: Live) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    params = {"fieldManager": "test", "force": "true"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made-up"}}
    with guarded.client(eks_token("drains")) as api:
        answer = api.patch(
            "/api/v1/nodes/made-up", params=params, content=json.dumps(node), headers=headers
        )
    assert answer.status_code == 403
    # RBAC gives no reason.
    assert answer.json()["message"] == 'nodes "made-up" is forbidden: '


def test_a_namespace_object_belongs_to_its_own_namespace(guarded: Live) -> None:
    assert 'in the namespace "default"' in refusal(guarded, "/api/v1/namespaces/default")
    assert "at the cluster scope" in refusal(guarded, "/api/v1/persistentvolumes/x")


def refusal(live: Live, path: str) -> str:
    """Return the message for a user without permissions."""
    with live.client(eks_token("powerless")) as client:
        return str(client.get(path).json()["message"])


def test_a_client_can_review_its_own_permissions(guarded: Live) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    with guarded.client(eks_token()) as client:
        answers = [
            client.post(path, json={"spec": {"resourceAttributes": asked}}).json()
            for asked in (
                {"verb": "create", "resource": "pods", "subresource": "eviction"},
                {"verb": "delete", "resource": "pods"},
            )
        ]
        myself = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}).json()

    assert [one["status"]["allowed"] for one in answers] == [True, False]
    assert "leeway:drain" in myself["status"]["userInfo"]["groups"]


def test_a_new_binding_applies_at_once(guarded: Live) -> None:
    before = status_with(guarded, eks_token("powerless"))
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "drains"}
    guarded.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "late"},
            "roleRef": reference,
            "subjects": [
                {"kind": "User", "name": "powerless", "apiGroup": "rbac.authorization.k8s.io"}
            ],
        },
    )

    assert (before, status_with(guarded, eks_token("powerless"))) == (403, 200)


def test_an_administrator_can_review_the_permissions_of_a_group(guarded: Live) -> None:
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    asked = {"verb": "create", "resource": "pods", "subresource": "eviction"}
    body = {"spec": {"user": "anybody", "groups": ["leeway:drain"], "resourceAttributes": asked}}
    other = {"spec": {**body["spec"], "groups": ["others"]}}
    answers = [guarded.api.post(path, json=one) for one in (body, other)]
    assert [one.status_code for one in answers] == [201, 201]
    assert [one.json()["status"]["allowed"] for one in answers] == [True, False]
    with guarded.client(eks_token("powerless")) as client:
        refused = client.post(path, json=body)
    assert refused.status_code == 403
    assert 'cannot create resource "subjectaccessreviews"' in refused.json()["message"]


def status_as(live: Live, path: str = PODS, token: str = "", **headers: str | list[str]) -> Any:
    """Return status and message of a GET with impersonation headers."""
    names = {"user": "Impersonate-User", "group": "Impersonate-Group", "uid": "Impersonate-Uid"}
    sent = [
        (names[key], one)
        for key, value in headers.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    with live.client(token or live.token) as client:
        answer = client.get(path, headers=[*client.headers.multi_items(), *sent])
    return answer.status_code, answer.json().get("message", "")


def test_an_impersonated_user_determines_the_permissions(guarded: Live) -> None:
    assert status_as(guarded, user="reader")[0] == 200
    code, reasons = status_as(guarded, "/api/v1/nodes", user="reader")
    assert code == 403
    assert 'User "reader" cannot list resource "nodes"' in reasons
    assert status_as(guarded, user="nobody")[0] == 403
    assert status_as(guarded, user="nobody", group=["others", "readers"])[0] == 200


def test_a_service_account_has_the_groups_of_its_namespace(guarded: Live) -> None:
    assert status_as(guarded, user="system:serviceaccount:jobs:runner")[0] == 200
    assert status_as(guarded, user="system:serviceaccount:other:runner")[0] == 403


def test_each_impersonated_name_needs_the_permission(guarded: Live) -> None:
    token = eks_token("stand-in")

    assert status_as(guarded, token=token)[0] == 403
    assert status_as(guarded, token=token, user="reader")[0] == 200
    code, reasons = status_as(guarded, token=token, user="admin")
    assert code == 403
    assert reasons == (
        'users "admin" is forbidden: User "stand-in" cannot impersonate resource "users" in API '
        'group "" at the cluster scope'
    )
    for more in ({"group": "system:masters"}, {"uid": "7"}):
        assert status_as(guarded, token=token, user="reader", **more)[0] == 403
    account = "system:serviceaccount:jobs:runner"
    reasons = status_as(guarded, token=token, user=account)[1]
    assert 'cannot impersonate resource "serviceaccounts"' in reasons
    assert 'in the namespace "jobs"' in reasons


def test_a_group_without_a_user_is_refused(guarded: Live) -> None:
    code, reasons = status_as(guarded, group="readers")

    assert code == 500
    assert "without impersonating a user" in reasons


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["list", "pods", "--as", "x", "--as-group", "readers"], "yes"),
        (["create", "pods", "--subresource=eviction", "--as", "reader"], "no"),
    ],
)
def test_kubectl_can_impersonate_a_user(guarded: Live, arguments: list[str], answer: str) -> None:
    kubeconfig: Path = guarded.kubeconfig()
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "auth", "can-i", *arguments]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert answer in result.stdout.split(), result.stdout + result.stderr
