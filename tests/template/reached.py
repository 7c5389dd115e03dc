"""Derives what a function can call from its code: AWS actions, and reports.

It starts at the handler and follows names from definition to definition. A method is reached if
its class is, and if reached code uses its name on an object that may have this class.
"""

import ast
from collections.abc import Iterator
from functools import cache

import boto3
from leeway.table import Table

from tests.template.kinds import (
    PROPERTIES,
    ROOT,
    Place,
    Scope,
    definition_of,
    file_of,
    foreign_bases,
    lineage,
    marks_of,
    may_be,
    methods_of,
    module_of,
    names_imported,
    place_in,
    place_of,
)

__all__ = ["IAM_NAMES", "ROOT", "actions_reached_by", "reports_reached_by"]

PROBES = "leeway.wiring.probes"
"""It serves all functions, and asks for rights that others give: test_probes.py compares them."""

IAM_NAMES = {
    "lambda:Invoke": "lambda:InvokeFunction",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
}
"""Operations whose permission has another name."""

TABLE = Place("leeway.table", "Table")
RECORD = Place("leeway.table", "Record")
IN_DYNAMODB = Place("leeway.aws.table", "DynamoTable")
OPERATIONS_OF_THE_TABLE = {
    "change": "BatchWriteItem",
    "delete": "DeleteItem",
    "find": "Query",
    "get": "GetItem",
    "get_many": "BatchGetItem",
    "list": "Query",
    "put": "PutItem",
}
"""The operation of each method of the table. `claim` calls `put`."""
assert {*OPERATIONS_OF_THE_TABLE, "claim"} == {m for m in vars(Table) if not m.startswith("_")}

TELEMETRY = Place("leeway.telemetry", "Telemetry")
"""The base of the classes of reports."""

IMPORTED_BY_NAME = "leeway.manifests"
"""Its `Kind` names models and converters in texts: `module:name`."""

CALL_NOTHING = {"ABC", "BaseModel", "Exception", "Protocol", "StrEnum", "ValueError"}
"""Classes of libraries that do not call methods of their subclasses by name."""

OF_PYTHON = PROPERTIES | {
    "abstractmethod",
    "classmethod",
    "contextmanager",
    "overload",
    "staticmethod",
}
"""Decorators that do not make a library call the method."""

ANYTHING = Place("", "")
DATA = Place("", "data")
"""Objects of unknown classes. Attributes of DATA are no methods, but may be properties."""


def actions_reached_by(function: str) -> set[str]:
    """Return the AWS actions that a function (a folder of functions/) can call, as IAM names
    them."""
    return {IAM_NAMES.get(action, action) for action in _reach_of(function).actions()}


def reports_reached_by(function: str) -> set[str]:
    """Return the methods of telemetry that a function (a folder of functions/) can call."""
    methods = _reach_of(function).methods
    return {method for place, method in methods if TELEMETRY in lineage(place)}


@cache
def _reach_of(function: str) -> "_Reach":
    return _Reach(function)


class _Reach:
    """The definitions and methods that the code of a function can reach."""

    def __init__(self, function: str) -> None:
        self.methods: set[tuple[Place, str]] = set()
        self._used: dict[str, set[Place]] = {}
        self._classes: set[Place] = set()
        self._adapters: dict[Place, tuple[str, ...]] = {}
        self._seen: set[Place] = set()
        self._modules: set[str] = set()
        self._todo: list[Place] = []
        handler = f"functions.{function}.handler"
        for name in module_of(handler).definitions:
            self._follow(Place(handler, name))
        while self._todo or self._reach_methods():
            while self._todo:
                self._reach(self._todo.pop())

    def _follow(self, place: Place) -> None:
        if place not in self._seen and place.module != PROBES:
            self._seen.add(place)
            self._todo.append(place)

    def _reach(self, place: Place) -> None:
        """Scan a definition, and what the import of its module runs."""
        module = module_of(place.module)
        if place.module not in self._modules:
            self._modules.add(place.module)
            for statement in module.run_on_import:
                self._scan(Scope(statement, place.module))
        if place.name in module.imports:
            self._follow(module.imports[place.name])
        for found in module.definitions.get(place.name, ()):
            if not isinstance(found, ast.ClassDef):
                self._scan(Scope(found, place.module))
                continue
            self._classes.add(place)
            fields = [one for one in found.body if not isinstance(one, ast.FunctionDef)]
            keywords = [keyword.value for keyword in found.keywords]
            for part in [*found.bases, *keywords, *found.decorator_list, *fields]:
                self._scan(Scope(part, place.module, place))

    def _reach_methods(self) -> bool:
        """Scan the methods of reached classes that are used; return whether there are any."""
        found = [
            (place, method)
            for place in self._classes
            for method in methods_of(place)
            if (place, method.name) not in self.methods and self._is_used(place, method)
        ]
        for place, method in found:
            self.methods.add((place, method.name))
            self._scan(Scope(method, place.module, place))
        return bool(found)

    def _is_used(self, place: Place, method: ast.FunctionDef) -> bool:
        by_a_library = marks_of(method) - OF_PYTHON or foreign_bases(place) - CALL_NOTHING
        if method.name.startswith("__") or by_a_library:
            return True
        used_on = self._used.get(method.name, set())
        of_table = place == TABLE and method.name in OPERATIONS_OF_THE_TABLE
        if ANYTHING in used_on and not of_table:
            return True
        if DATA in used_on and marks_of(method) & PROPERTIES:
            return True
        return any(may_be(place, on) for on in used_on - {ANYTHING, DATA})

    def _scan(self, scope: Scope) -> None:
        """Follow the names and note the attributes that code uses."""
        module = module_of(scope.module)
        for node in _nodes(scope.code):
            match node:
                case ast.Name(id=name) if name not in scope.parameters:
                    self._follow(Place(scope.module, name))
                case ast.ImportFrom():
                    for name in names_imported(node):
                        self._follow(Place(scope.module, name))
                case ast.Constant(value=str() as text) if text.count(":") == 1:
                    self._import_by_name(scope, text)
                case ast.Attribute():
                    if place := module.of_module(node):
                        self._follow(place)
                    elif ast.unparse(node.value) != "self._client()":
                        self._use(node, scope)
                case ast.Call():
                    if services := _services_of(node, scope):
                        self._add_adapter(node, scope, services)

    def _import_by_name(self, scope: Scope, text: str) -> None:
        name, _, attribute = text.partition(":")
        place = Place(f"{IMPORTED_BY_NAME}.{name}", attribute)
        if scope.module.startswith(IMPORTED_BY_NAME) and file_of(place.module).exists():
            self._follow(place)

    def _use(self, node: ast.Attribute, scope: Scope) -> None:
        """Note the use of an attribute. The table's methods have the names of those of dicts: on an
        object of an unknown class they count if they get a record."""
        kinds = scope.kinds_of(node.value)
        used_on = {place for kind in kinds or () if (place := place_in(kind))}
        if kinds is None:
            used_on = {DATA if node in scope.data else ANYTHING}
            if node.attr in OPERATIONS_OF_THE_TABLE and _is_of_the_table(node, scope):
                used_on.add(TABLE)
        self._used.setdefault(node.attr, set()).update(used_on)

    def _add_adapter(self, call: ast.Call, scope: Scope, services: tuple[str, ...]) -> None:
        (kind,) = scope.kinds_of(call) or ()
        place = place_in(kind)
        assert place
        assert self._adapters.setdefault(place, services) == services

    def actions(self) -> Iterator[str]:
        """Return the actions of the reached methods of adapters."""
        for place in self._classes:
            assert place in self._adapters or not _has_client(place), f"{place} has which client?"
        for name, operation in OPERATIONS_OF_THE_TABLE.items():
            if (TABLE, name) in self.methods:
                yield f"dynamodb:{operation}"
        for place in self._adapters.keys() - {IN_DYNAMODB}:
            services = self._adapters[place]
            for service, client in zip(services, _clients_of(place, services), strict=True):
                for method in methods_of(place):
                    if (place, method.name) in self.methods:
                        for call in _calls_on(client, method, place.module):
                            yield f"{service}:{_operations_of(service)[call]}"


def _nodes(code: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of code, without the annotations of parameters, results and attributes. The
    annotation of a field counts, since a library may build the field's value."""
    yield code
    for field, value in ast.iter_fields(code):
        is_field = isinstance(code, ast.AnnAssign) and isinstance(code.target, ast.Name)
        if field == "returns" or (field == "annotation" and not is_field):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield from _nodes(node)


def _is_of_the_table(method: ast.Attribute, scope: Scope) -> bool:
    """Whether a method gets the declaration of a record, in a call or by `partial`, or is called on
    what has the table's name."""
    calls = [node for node in ast.walk(scope.code) if isinstance(node, ast.Call)]
    arguments = [one for call in calls if method in {call.func, *call.args} for one in call.args]
    kinds = [kind for one in arguments for kind in scope.kinds_of(one) or ()]
    return ast.unparse(method.value).endswith("table") or RECORD in map(place_in, kinds)


def _services_of(call: ast.Call, scope: Scope) -> tuple[str, ...]:
    """Return the services of an adapter's clients: `Adapter(partial(client, "ec2"), …)`."""
    found = []
    for argument in call.args:
        values = scope.values_of(argument.id) if isinstance(argument, ast.Name) else [argument]
        services = {service for value in values for service in _services_in(value)}
        if not services:
            break
        (service,) = services
        found.append(service)
    return tuple(found)


def _services_in(value: ast.expr) -> set[str]:
    """Return the service of a client that is put off; two such clients may be alternatives."""
    if isinstance(value, ast.IfExp):
        return _services_in(value.body) | _services_in(value.orelse)
    put_off = ("partial(client, ", "partial(background_client, ")
    if isinstance(value, ast.Call) and ast.unparse(value).startswith(put_off):
        return {str(ast.literal_eval(value.args[1]))}
    return set()


@cache
def _operations_of(service: str) -> dict[str, str]:
    """Return the operations of a service by the methods of its client."""
    return dict(boto3.client(service, region_name="us-east-1").meta.method_to_api_mapping)


def _constructor(place: Place) -> list[ast.arg]:
    """Return the parameters of the constructor of a class."""
    made = [method for method in methods_of(place) if method.name == "__init__"]
    return made[0].args.args[1:] if made else []


def _has_client(place: Place) -> bool:
    clients = [one for one in _constructor(place) if one.annotation]
    return place.module.startswith("leeway.aws.") and any(
        ast.unparse(one.annotation) == "Callable[[], Any]" for one in clients if one.annotation
    )


def _clients_of(place: Place, services: tuple[str, ...]) -> list[str]:
    """Return how a class calls its clients, in the order of its parameters."""
    if len(services) == 1:
        return ["self._client()"]
    return [f"self._{one.arg}()" for one in _constructor(place)[: len(services)]]


def _calls_on(client: str, function: ast.FunctionDef, origin: str) -> Iterator[str]:
    """Return the boto3 methods and paginators that a function calls on a client, and those of
    functions that get the client from it. Other uses of the client are not detected."""
    understood = 0
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == client:
            understood += 1
            paginated = call.func.attr == "get_paginator"
            yield str(ast.literal_eval(call.args[0])) if paginated else call.func.attr
        for number, argument in enumerate(call.args):
            if ast.unparse(argument) == client:
                understood += 1
                handed_to, where = _function(ast.unparse(call.func), origin)
                yield from _calls_on(handed_to.args.args[number].arg, handed_to, where)
    named = sum(ast.unparse(n) == client for n in ast.walk(function) if isinstance(n, ast.expr))
    assert named == understood, f"{origin}: {function.name} does more with its client than is seen"


def _function(name: str, origin: str) -> tuple[ast.FunctionDef, str]:
    """Return the function of a module with this name, or the imported one, with its module."""
    place = place_of(origin, name)
    assert place
    found = definition_of(place)
    assert isinstance(found, ast.FunctionDef)
    return found, place.module
