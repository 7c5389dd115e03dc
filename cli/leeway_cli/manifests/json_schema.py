"""JSON Schemas of the kinds, for editors: with the models' docstrings as descriptions."""

import ast
import inspect
import textwrap
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from leeway.durations import render_duration
from leeway.manifests.base import NotActedOn
from leeway.manifests.reading import Kind, model_of
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

if TYPE_CHECKING:
    from pydantic_core.core_schema import ModelSchema

DIALECT = "https://json-schema.org/draft/2020-12/schema"

type Schema = dict[str, Any]


def schema_of(kind: Kind) -> Schema:
    """Build the JSON Schema of a kind."""
    schema = model_of(kind).model_json_schema(schema_generator=_Described)
    return {"$schema": DIALECT, **schema, "title": f"{kind.name} of {kind.api_version}"}


def file_of(kind: Kind, suffix: str) -> str:
    """Return the file name of a kind, as in public collections of schemas:
    `leeway.sh/cluster_v1.json`."""
    version = kind.api_version.rpartition("/")[2]
    return f"{kind.group}/{kind.name.lower()}_{version}{suffix}"


class _Described(GenerateJsonSchema):
    """Adds the docstring below each field as its description."""

    def encode_default(self, dft: Any) -> Any:
        """Write a default as a manifest does: pydantic would write durations by ISO 8601."""
        return render_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)

    def model_schema(self, schema: "ModelSchema") -> Schema:
        """Generate a model's schema."""
        generated = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        told = docstrings(model)
        for name, field in model.model_fields.items():
            described = generated.get("properties", {}).get(field.alias or name)
            if described is None:
                continue
            said = [told[name]] if name in told else []
            said += [f"Ignored: {m.why}." for m in field.metadata if isinstance(m, NotActedOn)]
            if said:
                described["description"] = " ".join(said)
        return generated


@cache
def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Read the docstring below each field of a model and of its base classes. Pydantic can do this
    as well, but at the import of the model, which would slow the start of every function."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not issubclass(one, BaseModel) or one is BaseModel:
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(body, ast.ClassDef)  # noqa: S101 - it is a class's source
        for field, after in zip(body.body, body.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[field.target.id] = " ".join(str(after.value.value).split())
    return found
