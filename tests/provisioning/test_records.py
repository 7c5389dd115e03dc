"""What a run keeps fits into an item of the table, and says what it should."""

from dataclasses import replace
from datetime import timedelta

from leeway.launch.intent import PodWithoutNode
from leeway.provisioning.report import ProvisioningStatus, grouped
from leeway.provisioning.tell import (
    KEPT_FOR,
    MINUTE,
    MOST_EVENTS,
    MOST_TOLD,
    TOLD,
    due_events,
    remembered,
)
from leeway.reasons import Reason

from tests.launch.launching import NOW
from tests.launch.pools import pods
from tests.provisioning.buying import waiting

LARGEST = 390_000


def without(pod: str, number: int = 0) -> PodWithoutNode:
    cause = Reason(f"Code{number}", "x" * 5000)
    return PodWithoutNode(pod, Reason("PodWithoutNode", "y" * 5000), cause)


def test_the_status_of_any_number_of_pods_and_reasons_fits_into_an_item() -> None:
    missing = [without(f"{'n' * 63}/{'p' * 240}-{n}", n % 500) for n in range(20_000)]
    groups, others = grouped(missing)
    status = ProvisioningStatus(cluster="c" * 100, run_at=NOW, without_node=groups, others=others)
    assert len(status.model_dump_json().encode()) < LARGEST
    assert sum(one.count for one in groups) + others == 20_000


def test_the_keys_of_any_number_of_events_fit_into_an_item() -> None:
    keys = [n.to_bytes(8) for n in range(MOST_TOLD + 500)]
    kept = remembered(dict.fromkeys(keys[:1000], NOW), keys[1000:], NOW + timedelta(minutes=1))
    assert len(kept) == MOST_TOLD > MOST_EVENTS * (KEPT_FOR / MINUTE)
    body = TOLD.write(kept, {"cluster": "prod"}, NOW).body
    assert body is not None
    assert len(body) < LARGEST
    assert keys[-1] in kept


def test_a_pod_has_another_event_if_the_reason_changes_or_if_the_pod_does() -> None:
    (pod,) = waiting(pods(1))
    name = pod.pod.name
    (first,) = due_events([without(name)], [pod], {}, NOW)
    told = {first.key: NOW}
    assert not due_events([without(name)], [pod], told, NOW)
    (other,) = due_events([without(name, 1)], [pod], told, NOW)
    assert other.event.name != first.event.name
    assert (first.event.about.namespace, first.event.about.name) == ("shop", "web-0")
    assert not due_events([without("shop/gone")], [pod], {}, NOW)


def test_namespaces_and_reason_codes_take_turns() -> None:
    flood = [f"flood/p-{n}" for n in range(500)]
    names = [*flood, "shop/web-0", "shop/web-1"]
    (any_pod,) = waiting(pods(1))
    state = [
        replace(any_pod, pod=replace(any_pod.pod, name=name), uid=f"uid-{name}") for name in names
    ]
    missing = [without(name) for name in flood]
    missing += [without("flood/p-499", 1), without("shop/web-0"), without("shop/web-1")]
    due = due_events(missing, state, {}, NOW)
    assert len(due) == 503
    assert [(one.event.about.namespace, one.event.reason) for one in due[:5]] == [
        ("flood", "Code0"),
        ("flood", "Code1"),
        ("shop", "Code0"),
        ("flood", "Code0"),
        ("shop", "Code0"),
    ]
