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


def buying(catalog: Catalog, below: float) -> Buying:
    """A cluster in which a node with a pod is given back to save money."""
    found = Buying(catalog)
    request = found.retire(*pods(1, name="moving"))
    limit = PriceLimit(decision="ip-retiring", below=below)
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
