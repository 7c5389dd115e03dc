"""A group of planned nodes → the launch intent with its fleet request, and its launch templates."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

from leeway.bootstrap.node import UserDataError, node_of
from leeway.bootstrap.user_data import UserData, render
from leeway.launch.fleets import LaunchGroup, Offers, request_of, select_overrides, token_of
from leeway.launch.images import variant_of
from leeway.launch.intent import LaunchIntent
from leeway.launch.node_settings import (
    NotLaunchable,
    instance_tags,
    settings_hashes,
    tag_value,
)
from leeway.launch.resolve_pools import ResolvedPool
from leeway.launch.templates import (
    LaunchTemplate,
    network_cards,
    template_of,
)
from leeway.ports.kubernetes_objects import Taint
from leeway.reasons import Reason, clause
from leeway.selection.labels import SPOT
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.machines import EFA, Machine
from leeway.selection.offers.reservations import ReservedCapacity


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """An intent that has not been written, and the templates that its request names."""

    intent: LaunchIntent
    templates: tuple[LaunchTemplate, ...]
    warnings: tuple[Reason, ...]

    def created_as(self, ids: Mapping[str, str]) -> "PreparedLaunch":
        """Return the launch whose request names its templates by their ids."""
        request = self.intent.request
        if request is None:
            return self
        templates = tuple(replace(one, template=ids[one.template]) for one in request.templates)
        request = replace(request, templates=templates)
        changed = {
            "request": request,
            "templates": tuple(one.template for one in templates),
            "token": token_of(self.intent.id, request),
        }
        return replace(self, intent=self.intent.model_copy(update=changed))


def machines_of(group: LaunchGroup, catalog: Catalog) -> Mapping[str, Machine]:
    """Return the machines of a group's instance types that the catalog describes, by name."""
    names = dict.fromkeys(name for one in group.choices for name in one.instance_types)
    found = {name: catalog.machine(name) for name in names}
    return {name: machine for name, machine in found.items() if machine is not None}


def prepare(
    group: LaunchGroup,
    pool: ResolvedPool,
    catalog: Catalog,
    offers: Offers,
    intent: str,
    now: datetime,
    below: float = inf,
    bills: Offers | None = None,
    billed: float = inf,
) -> PreparedLaunch:
    """Prepare the launch of a group. `intent` is the id of the new intent. Only offerings that cost
    less than `below` (USD per hour) are requested, and by the prices of AWS, `bills`, less than
    `billed`.

    Raises:
        NotLaunchable: no offering of the group can be requested, or its user data is not valid.
    """
    machines = machines_of(group, catalog)
    bootable = {name: m for name, m in machines.items() if variant_of(m) in pool.images}
    choices = [
        replace(one, instance_types=tuple(t for t in one.instance_types if t in bootable))
        for one in group.choices
    ]
    # minValues may count Spot offerings that cost more than on-demand ones.
    dear_spot = group.pool.has_min_values
    selected = select_overrides(
        choices, pool.subnets.by_zone, offers, below, bills, billed, dear_spot
    )
    if selected is None:
        zones = ", ".join(sorted({zone for one in group.choices for zone in one.zones}))
        raise NotLaunchable(
            f"pool {group.pool.name} has no subnet with free addresses in a zone that offers "
            f"one of its instance types: add subnets in {zones}"
        )
    used = dict.fromkeys(one.instance_type for one in selected.overrides)
    spot = selected.choice.capacity_type == SPOT
    machines = {name: bootable[name] for name in used}
    boots = _boots(group, pool, machines, spot=spot, reservation=selected.choice.reservation)
    cluster = pool.details.name
    hashes = tag_value(settings_hashes(pool.settings))
    tags = instance_tags(cluster, group.pool.name, intent, hashes, pool.resources.tags)
    request = request_of(selected, len(group.nodes), lambda name: boots[name].template.name, tags)
    first = next(iter(boots.values())).user_data
    named = {one.template for one in request.templates}
    templates = {one.template.name: one.template for one in boots.values()}
    return PreparedLaunch(
        LaunchIntent(
            id=intent,
            cluster=cluster,
            pool=group.pool.name,
            labels=group.labels,
            labels_for_admission=first.labels_for_admission,
            annotations=pool.settings.template.annotations,
            taints_for_admission=tuple(
                Taint(one.key, one.value, one.effect) for one in first.taints_for_admission
            ),
            startup_taints=tuple(taint.key for taint in group.pool.startup_taints),
            templates=tuple(one.template for one in request.templates),
            pods=group.pods,
            promised=group.promised,
            efa=group.efa,
            token=token_of(intent, request),
            created_at=now,
            request=request,
        ),
        tuple(template for name, template in templates.items() if name in named),
        tuple(dict.fromkeys((*pool.warnings, *first.warnings))),
    )


@dataclass(frozen=True, slots=True)
class _Boot:
    template: LaunchTemplate
    user_data: UserData


def _boots(
    group: LaunchGroup,
    pool: ResolvedPool,
    machines: Mapping[str, Machine],
    *,
    spot: bool,
    reservation: ReservedCapacity | None,
) -> Mapping[str, _Boot]:
    """Render the user data of each instance type, once for equal ones: it takes milliseconds."""
    source = replace(pool.settings.template, pool=group.pool)
    known: dict[object, _Boot] = {}
    found = {}
    for name, machine in machines.items():
        variant = variant_of(machine)
        try:
            node = node_of(source, pool.details, machine)
            reserved = tuple(node.kube_reserved.items())
            efas = machine.devices.get(EFA, 0) if group.efa else 0
            key = (variant, node.max_pods, reserved, node.local_disks, efas, machine.efa_card)
            if key not in known:
                user_data = render(source, pool.details, machine)
                template = template_of(
                    pool.details,
                    pool.settings,
                    pool.resources,
                    pool.images[variant],
                    user_data.text,
                    network_cards(efas, machine.efa_card),
                    spot=spot,
                    reservation=reservation,
                )
                known[key] = _Boot(template, user_data)
        except UserDataError as error:
            pool_name = group.pool.name
            raise NotLaunchable(
                f"the user data of pool {pool_name} can't be rendered: {clause(error)}"
            ) from error
        found[name] = known[key]
    return found
