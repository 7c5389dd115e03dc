"""Capacity reservations: the adapters against the sandbox's EC2, beside the fake."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from leeway.aws.ec2 import Ec2Instances, Ec2Sweep
from leeway.aws.fleets import Ec2Fleets, Ec2LaunchTemplates
from leeway.aws.node_sources import Ec2CapacityReservations
from leeway.instances.facts import INTENT_TAG
from leeway.launch.fleets import FleetAnswer, FleetRequest, Override, TemplateOverrides
from leeway.launch.node_settings import cluster_tags
from leeway.launch.reservations import CapacityReservation
from leeway.launch.templates import LaunchTemplate
from leeway.manifests.base import CapacityReservationTerm
from leeway.ports.aws import CloudRefused
from leeway.selection.offers.reservations import ReservedCapacity

from tests.fakes.capacity_reservations import CapacityReservationsInMemory
from tests.sandbox.aws.fleet_calls import image, profile, subnets
from tests.sandbox.aws.started import Sandbox

ZONE, TYPE = "us-east-1a", "m5.large"
OTHER_ACCOUNT = "999999999999"


@pytest.fixture(scope="module", autouse=True)
def nodes(aws: Sandbox) -> None:
    """The instance profile of launched instances."""
    profile(aws, "reserved-nodes")


def reserve(aws: Sandbox, **given: Any) -> str:
    """A reservation of the sandbox; its id."""
    body = {"instance_type": TYPE, "zone": ZONE, **given}
    return str(aws.control("POST", "reservations", body)["reservation"])


def term(**fields: Any) -> CapacityReservationTerm:
    return CapacityReservationTerm.model_validate(fields)


def ids(found: Any) -> list[str]:
    return [one.id for one in found]


def test_terms_select_reservations_as_ec2_and_as_the_fake_do(aws: Sandbox) -> None:
    mine = reserve(aws, count=3, tags={"team": "a", "app": "x"})
    opened = reserve(aws, match="open", tags={"team": "a"})
    shared = reserve(aws, owner=OTHER_ACCOUNT, kind="capacity-block", ends_in=7200)
    gone = reserve(aws, tags={"team": "a"})
    aws.client("ec2").cancel_capacity_reservation(CapacityReservationId=gone)
    real = Ec2CapacityReservations(partial(aws.client, "ec2"))
    everything = {
        one.id: one for one in real.matching([term(id=x) for x in (mine, opened, shared)])
    }
    fake = CapacityReservationsInMemory(everything)
    for terms, found in (
        ([term(tags={"team": "a"})], [mine, opened]),
        ([term(tags={"team": "*"}, instanceMatchCriteria="open")], [opened]),
        ([term(tags={"team": "a", "app": "x"})], [mine]),
        ([term(instanceMatchCriteria="targeted", ownerID=OTHER_ACCOUNT)], [shared]),
        ([term(id=mine), term(id="cr-0123456789abcdef0"), term(id=gone)], [mine]),
        ([term(id=mine), term(tags={"app": "*"})], [mine]),
        ([term(tags={"team": "nobody"})], []),
    ):
        assert ids(real.matching(terms)) == sorted(found), terms
        assert ids(fake.matching(terms)) == sorted(found), terms
    (block,) = real.matching([term(id=shared)])
    assert block.capacity == ReservedCapacity(shared, block=True)
    assert (block.owner, block.tags, block.total) == (OTHER_ACCOUNT, {}, 1)
    assert block.ends is not None
    assert block.drained_at == block.ends - timedelta(minutes=40)
    (own,) = real.matching([term(id=mine)])
    assert own == CapacityReservation(
        ReservedCapacity(mine),
        "123456789012",
        TYPE,
        ZONE,
        free=3,
        total=3,
        tags={"team": "a", "app": "x"},
    )


@pytest.mark.parametrize(
    "unfit",
    [{"tenancy": "dedicated"}, {"platform": "Windows"}, {"platform": "Red Hat Enterprise Linux"}],
)
def test_reservations_that_nodes_cannot_run_in_are_told_apart(
    aws: Sandbox, unfit: dict[str, str]
) -> None:
    (one,) = Ec2CapacityReservations(partial(aws.client, "ec2")).matching(
        [term(id=reserve(aws, **unfit))]
    )
    assert (one.fits, one.platform) == ("tenancy" not in unfit, unfit.get("platform", "Linux/UNIX"))


def test_a_refused_read_is_an_error(aws: Sandbox) -> None:
    fault = {"service": "ec2", "action": "DescribeCapacityReservations"}
    aws.control("PUT", "faults", {"faults": [{**fault, "error": "UnauthorizedOperation"}]})
    with pytest.raises(CloudRefused):
        Ec2CapacityReservations(partial(aws.client, "ec2")).matching([term(tags={"a": "b"})])
    aws.control("PUT", "faults", {"faults": []})


MARKETS: dict[str, tuple[ReservedCapacity, dict[str, Any], dict[str, Any]]] = {
    "default": (ReservedCapacity(""), {}, {}),
    "block": (
        ReservedCapacity("", block=True),
        {"kind": "capacity-block", "ends_in": 7200},
        {"InstanceMarketOptions": {"MarketType": "capacity-block"}},
    ),
    "interruptible": (
        ReservedCapacity("", interruptible=True),
        {"interruptible": True},
        {"InstanceMarketOptions": {"MarketType": "interruptible-capacity-reservation"}},
    ),
}


def launch(
    aws: Sandbox, capacity: ReservedCapacity, count: int, more: dict[str, Any], intent: str
) -> FleetAnswer:
    """Launch into a reservation as Leeway does."""
    client = partial(aws.client, "ec2")
    data = {
        "ImageId": image(aws),
        "IamInstanceProfile": {"Name": "reserved-nodes"},
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": capacity.id},
        },
        **more,
    }
    template = LaunchTemplate(
        f"leeway-reserved-{intent}", json.dumps(data), cluster_tags("reserved")
    )
    created = Ec2LaunchTemplates(client).ensure([template])[template.name]
    override = Override(TYPE, ZONE, subnets(aws)[ZONE])
    request = FleetRequest(
        "reserved",
        count,
        (TemplateOverrides(created, (override,)),),
        {INTENT_TAG: intent, **cluster_tags("reserved")},
        capacity,
    )
    return Ec2Fleets(client).create(request, f"token-{intent}")


@pytest.mark.parametrize("kind", MARKETS)
def test_a_fleet_launches_into_a_reservation_until_it_is_full(aws: Sandbox, kind: str) -> None:
    capacity, given, more = MARKETS[kind]
    name = reserve(aws, count=2, **given)
    capacity = ReservedCapacity(name, capacity.block, capacity.interruptible)
    answer = launch(aws, capacity, 3, more, f"full-{kind}")
    assert len(answer.instances) == 2
    assert {(one.capacity_type, one.reservation) for one in answer.instances} == {
        ("reserved", capacity)
    }
    (error,) = answer.errors
    assert (error.code, error.capacity_type, error.reservation) == (
        "ReservationCapacityExceeded",
        "reserved",
        name,
    )
    client = partial(aws.client, "ec2")
    (left,) = Ec2CapacityReservations(client).matching([term(id=name)])
    assert (left.free, left.total) == (0, 2)
    assert {*Ec2Fleets(client).launched_by(f"full-{kind}")} == {*answer.instances}
    instances = Ec2Instances(client)
    facts = instances.describe(answer.instances[0].instance)
    assert facts is not None
    assert (facts.capacity_type, facts.reservation) == ("reserved", capacity)
    assert sorted(instances.in_reservation(name)) == sorted(o.instance for o in answer.instances)
    assert instances.in_reservation("cr-none") == []


def test_an_instance_whose_reservation_was_cancelled_is_on_demand(aws: Sandbox) -> None:
    name, client = reserve(aws), partial(aws.client, "ec2")
    (one,) = launch(aws, ReservedCapacity(name), 1, {}, "cancelled").instances
    aws.client("ec2").cancel_capacity_reservation(CapacityReservationId=name)
    facts = Ec2Instances(client).describe(one.instance)
    assert facts is not None
    assert (facts.capacity_type, facts.reservation) == ("on-demand", None)
    again = launch(aws, ReservedCapacity(name), 1, {}, "again")
    assert again.instances == ()
    assert again.errors


def test_an_open_reservation_takes_instances_that_count_as_on_demand(aws: Sandbox) -> None:
    name = reserve(aws, match="open", instance_type="m6i.large")
    client = partial(aws.client, "ec2")
    override = Override("m6i.large", ZONE, subnets(aws)[ZONE])
    for preference in ("none", "open"):
        data = f'{{"ImageId": "{image(aws)}", "CapacityReservationSpecification": {{'
        data += f'"CapacityReservationPreference": "{preference}"}}}}'
        template = LaunchTemplate(f"leeway-reserved-{preference}", data, cluster_tags("reserved"))
        created = Ec2LaunchTemplates(client).ensure([template])[template.name]
        tags = {INTENT_TAG: preference, **cluster_tags("reserved")}
        templates = (TemplateOverrides(created, (override,)),)
        Ec2Fleets(client).create(FleetRequest("on-demand", 1, templates, tags), preference)
        (one,) = Ec2Fleets(client).launched_by(preference)
        assert (one.capacity_type, one.reservation) == ("on-demand", None)
        found = Ec2Instances(client).in_reservation(name)
        assert found == ([one.instance] if preference == "open" else [])


def test_the_end_of_the_instances_of_a_block_is_known(aws: Sandbox) -> None:
    block = reserve(aws, kind="capacity-block", ends_in=7200)
    sweep = Ec2Sweep(partial(aws.client, "ec2"))
    found = sweep.block_ends([block, "cr-0123456789abcdef1"])
    assert found.keys() == {block}
    ends = datetime.now(UTC) + timedelta(minutes=90)
    assert abs(found[block] - ends) < timedelta(minutes=1)
