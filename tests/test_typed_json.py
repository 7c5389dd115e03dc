"""Values that msgspec writes and reads."""

import importlib
import pkgutil
from dataclasses import is_dataclass

import leeway


def test_no_dataclass_has_a_type_of_pydantic_which_msgspec_refuses_only_when_it_reads() -> None:
    found = [module.name for module in pkgutil.walk_packages(leeway.__path__, "leeway.")]
    modules = [importlib.import_module(name) for name in found]
    values = [one for module in modules for one in vars(module).values()]
    classes = {one for one in values if isinstance(one, type) and is_dataclass(one)}
    ours = [one for one in classes if one.__module__.startswith("leeway.")]
    assert len(ours) > 300
    refused = [one for one in ours if "pydantic.types" in str(vars(one).get("__annotations__"))]
    assert refused == []
