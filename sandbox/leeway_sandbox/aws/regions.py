"""The instance types that a region offers: moto's data, read without moto itself, and a fixture."""

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from leeway_sandbox.aws import price_book, retired_types
from leeway_sandbox.installed import package

# Reads the zones from the source of moto's models, because their import loads half of moto.
_ZONE = re.compile(r'Zone\(\s*region_name="([^"]+)",\s*name="([^"]+)",\s*zone_id="([^"]+)"')


class UnknownRegion(LookupError):
    """moto has no offerings of a region of this name."""


@dataclass(frozen=True)
class Region:
    """The instance types of a region.

    `types` are documents of DescribeInstanceTypes, `offered` the type names by zone, `zone_ids` the
    zone ids by zone. Prices are in USD per hour: on demand by type, Spot by zone and type.
    """

    name: str
    types: tuple[Mapping[str, Any], ...]
    offered: Mapping[str, frozenset[str]]
    zone_ids: Mapping[str, str]
    on_demand: Mapping[str, float]
    spot: Mapping[str, Mapping[str, float]]


def regions() -> list[str]:
    """Return the regions with data."""
    found = (_data() / "instance_type_offerings" / "availability-zone").glob("*.json.gz")
    return sorted(path.name.removesuffix(".json.gz") for path in found)


def read_region(name: str) -> Region:
    """Read one region.

    Raises:
        UnknownRegion: the region has no data.
    """
    if name not in regions():
        raise UnknownRegion(name)
    kinds: dict[str, Any] = _load("instance_types.json.gz")
    kinds |= {kind["InstanceType"]: kind for kind in retired_types.TYPES}
    zones: dict[str, set[str]] = {}
    found = _load(f"instance_type_offerings/availability-zone/{name}.json.gz")
    places = [(o["InstanceType"], o["Location"]) for o in found]
    for kind, zone in (*places, *retired_types.offered_in(name)):
        if kind in kinds:
            zones.setdefault(zone, set()).add(kind)
    offered = sorted({kind for names in zones.values() for kind in names})
    return Region(
        name=name,
        types=tuple(kinds[kind] for kind in offered),
        offered={zone: frozenset(names) for zone, names in sorted(zones.items())},
        zone_ids={zone: zone_id for region, zone, zone_id in _zones() if region == name},
        on_demand={kind: price_book.on_demand_price(kinds[kind]) for kind in offered},
        spot={
            zone: {kind: price_book.spot_price(kinds[kind], zone) for kind in sorted(names)}
            for zone, names in sorted(zones.items())
        },
    )


@cache
def _data() -> Path:
    return package("moto") / "ec2" / "resources"


@cache
def _zones() -> list[tuple[str, str, str]]:
    source = _data().parent / "models" / "availability_zones_and_regions.py"
    return _ZONE.findall(source.read_text())


def _load(name: str) -> Any:
    return json.loads(gzip.decompress((_data() / name).read_bytes()))
