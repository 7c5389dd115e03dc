"""Requests of retirements that save money: no new node at a price that saves nothing."""

from dataclasses import replace

from leeway.capacity_requests import CAPACITY_REQUEST, PriceLimit
from leeway.provisioning.cluster_state import ObservedPod
from leeway.selection.offers.catalog import Catalog

from tests.launch.conftest import catalog
from tests.launch.launching import NOW
from tests.launch.pools import pods
from tests.provisioning.buying import RETIRING, Buying

__all__ = ["catalog"]


def buying(catalog: Catalog, below: float, own: float | None = None) -> Buying:
    """A cluster in which a node with a pod is given back to save money."""
    found = Buying(catalog)
    request = found.retire(*pods(1, name="moving"))
    limit = PriceLimit(decision="ip-retiring", below=below, own=own)
    found.table.put(
        CAPACITY_REQUEST, request.model_copy(update={"price_limit": limit, "version": 2})
    )
    return found


def test_a_successor_that_saves_nothing_is_not_launched_and_the_answer_says_so(
    catalog: Catalog,
) -> None:
    found = buying(catalog, below=0.000001)
    assert found.run().launched == ()
    answer = found.requests[RETIRING].answer
    assert answer is not None
    assert "costs less than the nodes" in answer.without_node[0].message


def test_a_node_that_stays_after_all_does_not_pay_for_the_successor_of_the_others(
    catalog: Catalog,
) -> None:
    found = buying(catalog, below=100.0, own=0.000001)
    assert found.run().launched == ()
    limit = PriceLimit(decision="ip-retiring", below=100.0, own=99.0)
    other = {"instance": "i-other", "node": "ip-other", "price_limit": limit, "version": 1}
    found.table.put(CAPACITY_REQUEST, found.requests[RETIRING].model_copy(update=other))
    assert len(found.run().launched) == 1, "both nodes go"


def test_a_request_without_the_price_of_its_node_has_the_limit_of_all(catalog: Catalog) -> None:
    assert len(buying(catalog, below=100.0).run().launched) == 1


def test_a_pod_that_was_evicted_gets_a_node_at_any_price(catalog: Catalog) -> None:
    found = buying(catalog, below=0.000001)
    (again,) = pods(1, name="again")
    state = found.states.state
    found.states.state = replace(
        state,
        movable={},
        leaving={"ip-retiring": ("ReplicaSet/web",)},
        waiting=[ObservedPod(again, "uid-again", NOW, controller="ReplicaSet/web")],
    )
    assert len(found.run().launched) == 1
