"""Who may call: tokens as EKS reads them, and roles as RBAC enforces them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.signers import RequestSigner

from tests.sandbox.kubernetes.live import PODS, Live, running_cluster
from tests.sandbox.kubernetes.recorded import Exchange, exchanges

_ROLES = Path(__file__).parent / "roles.yaml"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Return a cluster that enforces roles."""
    with running_cluster(tmp_path_factory.mktemp("guarded"), "--rbac", str(_ROLES)) as live:
        yield live


def eks_token(key: str = "AKIAEXAMPLE", *, cluster: str = "sandbox", action: str = "") -> str:
    """Presign GetCallerIdentity as an EKS client does."""
    session = boto3.Session(key, "secret", region_name="us-east-1")
    client = session.client("sts")
    signer = RequestSigner(
        client.meta.service_model.service_id,
        "us-east-1",
        "sts",
        "v4",
        session.get_credentials(),
        session.events,
    )
    url = f"https://sts.us-east-1.amazonaws.com/?Action={action or 'GetCallerIdentity'}"
    request = {
        "method": "GET",
        "url": f"{url}&Version=2011-06-15",
        "body": {},
        "headers": {"x-k8s-aws-id": cluster} if cluster else {},
        "context": {},
    }
    signed = signer.generate_presigned_url(request, expires_in=60, operation_name="")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(signed.encode()).decode().rstrip("=")


def status_with(live: Live, token: str, path: str = "/api/v1/nodes") -> int:
    """Return the status a token gets."""
    with live.client(token) as client:
        return client.get(path).status_code


def test_a_presigned_url_is_a_token(guarded: Live) -> None:
    assert status_with(guarded, eks_token()) == 200


def test_a_token_without_the_clusters_header_is_nobodys(guarded: Live) -> None:
    assert status_with(guarded, eks_token(cluster="")) == 401


def test_a_token_for_another_action_is_nobodys(guarded: Live) -> None:
    assert status_with(guarded, eks_token(action="GetSessionToken")) == 401


def test_a_token_is_refused_after_fifteen_minutes(guarded: Live) -> None:
    token = eks_token()
    url = base64.urlsafe_b64decode(token.removeprefix("k8s-aws-v1.") + "==").decode()
    year = url.partition("X-Amz-Date=")[2][:4]
    old = url.replace(f"X-Amz-Date={year}", f"X-Amz-Date={int(year) - 1}")
    stale = "k8s-aws-v1." + base64.urlsafe_b64encode(old.encode()).decode().rstrip("=")

    assert status_with(guarded, stale) == 401


@pytest.mark.parametrize("token", ["k8s-aws-v1.bm9uc2Vuc2U", "k8s-aws-v1.!", "k8s-aws-v1."])
def test_nonsense_is_nobodys(guarded: Live, token: str) -> None:
    assert status_with(guarded, token) == 401


def test_groups_come_from_the_access_entries(guarded: Live) -> None:
    guarded.control.put("/_sandbox/access", json={"AKIANOTHING": ["leeway:headroom"]})

    assert status_with(guarded, eks_token("AKIANOTHING")) == 403
    assert status_with(guarded, eks_token("AKIAOTHER")) == 200


@pytest.mark.parametrize(
    "exchange",
    [one for one in exchanges("discovery-and-access") if "without rights" in one.label],
    ids=lambda one: one.label,
)
def test_a_missing_verb_is_refused_as_recorded(guarded: Live, exchange: Exchange) -> None:
    powerless = {"leeway-token": {"username": "leeway", "groups": []}}
    guarded.control.put("/_sandbox/access", json=powerless)

    with guarded.client("leeway-token") as client:
        response = client.request(exchange.method, exchange.path, json=exchange.sent)

    assert response.status_code == exchange.status
    assert response.json() == exchange.answer


def test_a_role_gives_what_it_names_and_nothing_more(guarded: Live) -> None:
    with guarded.client(eks_token()) as client:
        allowed = client.post(f"{PODS}/x/eviction", json={"metadata": {"name": "x"}})
        refused = client.delete(f"{PODS}/x")
        subresource = client.get(f"{PODS}/x/log")

    assert allowed.status_code == 404  # allowed to ask; there is no such pod
    assert (refused.status_code, subresource.status_code) == (403, 403)


def test_a_client_may_ask_what_it_can_do(guarded: Live) -> None:
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


def test_a_new_binding_counts_at_once(guarded: Live) -> None:
    guarded.control.put("/_sandbox/access", json={"late": {"username": "late", "groups": []}})
    before = status_with(guarded, "late")
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "drains"}
    guarded.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "late"},
            "roleRef": reference,
            "subjects": [{"kind": "User", "name": "late", "apiGroup": "rbac.authorization.k8s.io"}],
        },
    )

    assert (before, status_with(guarded, "late")) == (403, 200)
