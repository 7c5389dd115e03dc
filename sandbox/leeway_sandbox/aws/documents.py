"""Answers of EC2 that list thousands of documents, written without moto's serializer.

moto looks for each member under several names and builds the whole answer as a tree. For the types
of a region that takes more processor time than the rest of a sandbox's start.
"""

import functools
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

from moto.core.responses import ActionContext, ActionResult
from moto.core.utils import get_service_model
from moto.ec2.models.instance_types import InstanceTypeBackend
from moto.ec2.responses.instances import InstanceResponse

type Write = Callable[[Any], str]

_written: dict[str, str] = {}
"""The document of each instance type that was written once."""


class Documents(ActionResult):
    """A result whose values have the names and the types of AWS's documents at every depth."""

    def execute_result(self, context: ActionContext) -> Any:
        """Return the status, the headers and the XML of the answer."""
        operation = context.operation_model
        write = _of_operation(operation.name)
        response = f"{operation.name}Response"
        namespace = context.service_model.metadata["xmlNamespace"]
        body = (
            f'<?xml version="1.0" encoding="utf-8"?>\n<{response} xmlns="{namespace}">'
            f"{write(self.result)}<requestId>request-id</requestId></{response}>"
        )
        # In a text moto would look for the id of the request: that takes as long as to write it.
        return 200, {"Content-Type": "text/xml"}, body.encode()


class TypesOfRegion(InstanceResponse):
    """Answers what instance types the region has and where it offers them."""

    def describe_instance_types(self) -> ActionResult:
        """Return the types that the names and the filters select."""
        return Documents(super().describe_instance_types().result)

    def describe_instance_type_offerings(self) -> ActionResult:
        """Return the offerings of a kind of location."""
        return Documents(super().describe_instance_type_offerings().result)


def write_types() -> None:
    """Write the documents of all types."""
    write = _of_operation("DescribeInstanceTypes")
    write({"InstanceTypes": InstanceTypeBackend.instance_types})


@functools.cache
def _of_operation(name: str) -> Write:
    return _structure(get_service_model("ec2").operation_model(name).output_shape)


def _writer(shape: Any) -> Write:
    if shape.name == "InstanceTypeInfo":
        return _once(_structure(shape))
    if shape.type_name == "structure":
        return _structure(shape)
    if shape.type_name == "list":
        one = _writer(shape.member)
        return lambda values: "".join([f"<item>{one(value)}</item>" for value in values])
    if shape.type_name == "boolean":
        return lambda value: "true" if value else "false"
    if shape.type_name == "string":
        return lambda value: escape(str(value))
    return str


def _once(write: Write) -> Write:
    def write_once(kind: Any) -> str:
        name = kind["InstanceType"]
        if name not in _written:
            _written[name] = write(kind)
        return _written[name]

    return write_once


def _structure(shape: Any) -> Write:
    members = {
        name: (member.serialization.get("name", name), _writer(member))
        for name, member in shape.members.items()
    }

    def write(document: Any) -> str:
        return "".join(
            [
                f"<{tag}>{one(value)}</{tag}>"
                for name, value in document.items()
                if name in members and value is not None
                for tag, one in (members[name],)
            ]
        )

    return write
