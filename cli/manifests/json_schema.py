"""Builds the JSON Schemas of the kinds from the models and their docstrings, for editors."""

import ast
import inspect
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any

from leeway.manifests.base import NotActedOn
from leeway.manifests.kinds import Kind, model_of
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

if TYPE_CHECKING:
    from pydantic_core.core_schema import ModelSchema

DIALECT = "https://json-schema.org/draft/2020-12/schema"

type Schema = dict[str, Any]


def schema_of(kind: Kind) -> Schema:
    """Build the JSON Schema of a kind's manifests."""
    schema = model_of(kind).model_json_schema(schema_generator=_Described)
    return {"$schema": DIALECT, **schema, "title": f"{kind.name} of {kind.api_version}"}


def file_of(kind: Kind, suffix: str) -> str:
    """Return the file name of a kind, as in schema catalogs: `leeway.sh/cluster_v1.json`."""
    version = kind.api_version.rpartition("/")[2]
    return f"{kind.group}/{kind.name.lower()}_{version}{suffix}"


class _Described(GenerateJsonSchema):
    """Adds the docstring of every field as its description."""

    def model_schema(self, schema: "ModelSchema") -> Schema:
        """Generate a model's schema."""
        generated = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        descriptions = docstrings(model)
        for name, field in model.model_fields.items():
            described = generated.get("properties", {}).get(field.alias or name)
            if described is None:
                continue
            parts = [descriptions[name]] if name in descriptions else []
            parts += [
                f"Not acted on: {m.why}." for m in field.metadata if isinstance(m, NotActedOn)
            ]
            if parts:
                described["description"] = " ".join(parts)
        return generated


@cache
def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Read the docstring under each field of a model and its base classes. Pydantic reads them when
    it builds a class, which would slow the start of every function."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not issubclass(one, BaseModel) or one is BaseModel:
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(body, ast.ClassDef)  # noqa: S101 - the source of a class
        for field, after in zip(body.body, body.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[field.target.id] = " ".join(str(after.value.value).split())
    return found
