"""Removes the operations that nothing in the layer calls from botocore's models of services.

botocore parses the whole model of a service for its first client and makes a method for each of its
operations; EC2 has 830. An operation stays if its name in Python, as `describe_instances`, is a
word in any source of the layer: Leeway's, the durable SDK's, or botocore's own.

    python trim_models.py FOLDER    FOLDER has the packages of the layer, botocore among them
"""

import gzip
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from botocore import xform_name


def main(layer: Path) -> None:
    """Rewrite the newest model of each service, remove the older ones, and write the endpoints of
    these services only."""
    sources = (path.read_text() for path in layer.rglob("*.py"))
    words = {word for source in sources for word in re.findall(r"\w+", source)}
    data, prefixes = layer / "botocore" / "data", set()
    for service in filter(Path.is_dir, data.iterdir()):
        *old, newest = sorted(service.iterdir())
        for version in old:
            shutil.rmtree(version)
        packed = newest / "service-2.json.gz"
        model = json.loads(gzip.decompress(packed.read_bytes()))
        prefixes.add(model["metadata"]["endpointPrefix"])
        _write(packed.with_suffix(""), _trimmed(model, words))
        packed.unlink()
    endpoints = json.loads((data / "endpoints.json").read_bytes())
    for partition in endpoints["partitions"]:
        of_partition = partition["services"].items()
        partition["services"] = {name: one for name, one in of_partition if name in prefixes}
    _write(data / "endpoints.json", endpoints)


def _trimmed(model: Any, words: set[str]) -> Any:
    """Return the model with the operations that are among the words, and the shapes of these."""
    operations = {
        name: operation
        for name, operation in model["operations"].items()
        if xform_name(name) in words
    }
    shapes: dict[str, Any] = {}
    left = [operations]
    while left:
        for name in _shapes_in(left.pop()):
            if name not in shapes:
                shapes[name] = model["shapes"][name]
                left.append(shapes[name])
    return {"metadata": model["metadata"], "operations": operations, "shapes": shapes}


def _shapes_in(part: Any) -> Iterator[str]:
    """Yield the names of shapes that a part of a model refers to."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if key == "shape" and isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from _shapes_in(value)


def _write(path: Path, value: Any) -> None:
    """Write JSON without the documentation."""
    path.write_text(json.dumps(_undocumented(value), separators=(",", ":")))


def _undocumented(value: Any) -> Any:
    if isinstance(value, list):
        return [_undocumented(one) for one in value]
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if not (k == "documentation" and isinstance(v, str))}
        return {key: _undocumented(one) for key, one in kept.items()}
    return value


main(Path(sys.argv[1]))
