"""Derives what a function can call from its code: AWS actions, and reports.

It starts at the handler and follows names from definition to definition. A method is reached if
its class is, and if reached code uses its name as an attribute, of whatever object.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import boto3
from leeway.table import Table

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers" / "leeway"
FUNCTIONS = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))

PROBES = "leeway.wiring.probes"
"""It serves all functions, and asks for rights that others give: test_probes.py compares them."""

IAM_NAMES = {
    "elbv2:DescribeTargetGroupAttributes": "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elbv2:DescribeTargetGroups": "elasticloadbalancing:DescribeTargetGroups",
    "elbv2:DescribeTargetHealth": "elasticloadbalancing:DescribeTargetHealth",
    "lambda:Invoke": "lambda:InvokeFunction",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
}
"""Operations whose permission has another name."""

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

unparse = cache(ast.unparse)
"""Each definition is scanned for several functions."""

IMPORTED_BY_NAME = "leeway.manifests"
"""Its `Kind` names models and converters in texts: `module:name`."""


class Place(NamedTuple):
    """A definition at the top level of a module."""

    module: str
    name: str


TABLE = Place("leeway.table", "Table")
IN_DYNAMODB = Place("leeway.aws.table", "DynamoTable")
TELEMETRY = Place("leeway.telemetry", "Telemetry")
"""The base of the classes of reports."""


class Module:
    """The definitions and imports of a module. Imports for types count: annotations are skipped."""

    def __init__(self, module: str) -> None:
        self.imports: dict[str, Place] = {}
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.run_on_import: list[ast.stmt] = []
        tree = ast.parse(file_of(module).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("leeway"):
                for alias in node.names:
                    below = f"{node.module}.{alias.name}"
                    is_module = file_of(below).exists()
                    place = Place(below, "") if is_module else Place(str(node.module), alias.name)
                    self.imports[alias.asname or alias.name] = place
        for statement in tree.body:
            match statement:
                case ast.Import() | ast.ImportFrom():
                    continue
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names = {name}
                case ast.TypeAlias(name=ast.Name(id=name)):
                    names = {name}
                case ast.Assign() | ast.AnnAssign():
                    stored = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
                    names = {n.id for n in stored if isinstance(n.ctx, ast.Store)}
                case _:
                    names = set()
                    self.run_on_import.append(statement)
            for name in names:
                self.definitions.setdefault(name, []).append(statement)


@cache
def module_of(module: str) -> Module:
    return Module(module)


def file_of(module: str) -> Path:
    """Return the file of a module of the layer or of a function."""
    path = (ROOT if module.startswith("functions.") else LAYER).joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def place_of(module: str, name: str) -> Place | None:
    """Return where a name of a module is defined; None if not in Leeway."""
    found = module_of(module)
    if name in found.definitions:
        return Place(module, name)
    held = found.imports.get(name)
    return place_of(*held) if held and held.name else None


def class_of(place: Place) -> ast.ClassDef:
    (found,) = module_of(place.module).definitions[place.name]
    assert isinstance(found, ast.ClassDef), place
    return found


def methods_of(place: Place) -> list[ast.FunctionDef]:
    return [one for one in class_of(place).body if isinstance(one, ast.FunctionDef)]


def bases_of(place: Place) -> list[Place | None]:
    """Return the bases of a class; None for one of a library."""
    named = [b.value if isinstance(b, ast.Subscript) else b for b in class_of(place).bases]
    return [place_of(place.module, unparse(one)) for one in named]


def lineage(place: Place) -> list[Place]:
    """Return a class and the classes of Leeway that it inherits from."""
    return [place, *(one for base in bases_of(place) if base for one in lineage(base))]


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
        self._read: set[str] = set()
        self._called: set[str] = set()
        self._called_on_table: set[str] = set()
        self._classes: set[Place] = set()
        self._adapters: dict[Place, list[str]] = {}
        self._seen: set[Place] = set()
        self._modules: set[str] = set()
        self._todo: list[Place] = []
        handler = f"functions.{function}.handler"
        for name in module_of(handler).definitions:
            self._follow(Place(handler, name))
        while self._todo or self._reach_methods():
            while self._todo:
                self._reach(self._todo.pop())

    def _follow(self, place: Place | None) -> None:
        if place and place not in self._seen and place.module != PROBES:
            self._seen.add(place)
            self._todo.append(place)

    def _reach(self, place: Place) -> None:
        """Scan a definition, and what the import of its module runs."""
        module = module_of(place.module)
        if place.module not in self._modules:
            self._modules.add(place.module)
            for statement in module.run_on_import:
                self._scan(statement, place.module)
        for found in module.definitions.get(place.name, ()):
            if isinstance(found, ast.ClassDef):
                self._classes.add(place)
                fields = [one for one in found.body if not isinstance(one, ast.FunctionDef)]
                for part in [*found.bases, *found.keywords, *found.decorator_list, *fields]:
                    self._scan(part, place.module)
            else:
                self._scan(found, place.module)

    def _reach_methods(self) -> bool:
        """Scan the methods of reached classes that are used; return whether there are any."""
        found = [
            (place, method)
            for place in self._classes
            for method in methods_of(place)
            if (place, method.name) not in self.methods
            and (method.name.startswith("__") or self._is_used(place, method))
        ]
        for place, method in found:
            self.methods.add((place, method.name))
            self._scan(method, place.module)
        return bool(found)

    def _is_used(self, place: Place, method: ast.FunctionDef) -> bool:
        """Whether the name of a method is used: called or passed on, or read of a property. The
        table's methods have the names of those of dicts: they count on what is called a table."""
        if place == TABLE and method.name in OPERATIONS_OF_THE_TABLE:
            return method.name in self._called_on_table
        return method.name in (self._read if method.decorator_list else self._called)

    def _scan(self, code: ast.AST, origin: str) -> None:
        """Follow the names and note the attributes that code uses."""
        nodes, called = _nodes_of(code)
        for node in nodes:
            match node:
                case ast.Name(id=name):
                    self._follow(place_of(origin, name))
                case ast.Constant(value=str() as text) if text.count(":") == 1:
                    module, _, attribute = text.partition(":")
                    by_name = Place(f"{IMPORTED_BY_NAME}.{module}", attribute)
                    if origin.startswith(IMPORTED_BY_NAME) and file_of(by_name.module).exists():
                        self._follow(by_name)
                case ast.Attribute(value=held, attr=attribute):
                    at = module_of(origin).imports.get(unparse(held))
                    if at and not at.name:
                        self._follow(place_of(at.module, attribute))
                    elif unparse(held) != "self._client()":
                        self._read.add(attribute)
                        if node in called:
                            self._called.add(attribute)
                        if unparse(held).endswith("table") or origin == TABLE.module:
                            self._called_on_table.add(attribute)
                case ast.Call(func=ast.Name(id=name)):
                    if adapter := place_of(origin, name):
                        self._add_adapter(adapter, node, code)

    def _add_adapter(self, place: Place, call: ast.Call, code: ast.AST) -> None:
        """Note the services of an adapter's clients: `Adapter(partial(client, "ec2"), …)`."""
        services: list[str] = []
        for argument in call.args:
            values: list[ast.expr] = [argument]
            if isinstance(argument, ast.Name):
                values = [a.value for a in _assigned(code) if unparse(a.targets[0]) == argument.id]
            found = {service for value in values for service in _services_in(value)}
            services += found
            assert len(found) < 2, unparse(call)
        if services:
            assert self._adapters.setdefault(place, services) == services

    def actions(self) -> Iterator[str]:
        """Return the actions of the reached methods of adapters."""
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


@cache
def _nodes_of(code: ast.AST) -> tuple[list[ast.AST], set[ast.expr]]:
    """Return the nodes of code, and those that it calls or passes on to be called."""
    nodes = list(_nodes(code))
    return nodes, {one for node in nodes if isinstance(node, ast.Call) for one in _called_in(node)}


@cache
def _assigned(code: ast.AST) -> list[ast.Assign]:
    return [one for one in ast.walk(code) if isinstance(one, ast.Assign)]


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


def _called_in(call: ast.Call) -> Iterator[ast.expr]:
    """Return what a call calls or passes on to be called: `partial(cluster.nodes)`, `self._read`,
    `Reports(logger).refreshed`. Other attributes among its arguments are data."""
    yield call.func
    for one in (*call.args, *(keyword.value for keyword in call.keywords)):
        of_a_new_object = isinstance(one, ast.Attribute) and isinstance(one.value, ast.Call)
        of_self = unparse(one).startswith("self.")
        if of_a_new_object or of_self or unparse(call.func) == "partial":
            yield one


def _services_in(value: ast.expr) -> set[str]:
    """Return the service of a client that is put off; two such clients may be alternatives."""
    if isinstance(value, ast.IfExp):
        return _services_in(value.body) | _services_in(value.orelse)
    put_off = ("partial(client, ", "partial(background_client, ")
    if isinstance(value, ast.Call) and unparse(value).startswith(put_off):
        return {str(ast.literal_eval(value.args[1]))}
    return set()


@cache
def _operations_of(service: str) -> dict[str, str]:
    """Return the operations of a service by the methods of its client."""
    return dict(boto3.client(service, region_name="us-east-1").meta.method_to_api_mapping)


def _clients_of(place: Place, services: list[str]) -> list[str]:
    """Return how a class calls its clients, in the order of its parameters."""
    if len(services) == 1:
        return ["self._client()"]
    (made,) = (method for method in methods_of(place) if method.name == "__init__")
    return [f"self._{one.arg}()" for one in made.args.args[1 : 1 + len(services)]]


def _calls_on(client: str, function: ast.FunctionDef, origin: str) -> Iterator[str]:
    """Return the boto3 methods and paginators that a function calls on a client, and those of
    functions that get the client from it. Other uses of the client are not detected."""
    understood = 0
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and unparse(call.func.value) == client:
            understood += 1
            paginated = call.func.attr == "get_paginator"
            yield str(ast.literal_eval(call.args[0])) if paginated else call.func.attr
        for number, argument in enumerate(call.args):
            if unparse(argument) == client:
                understood += 1
                place = place_of(origin, unparse(call.func))
                assert place
                (handed_to,) = module_of(place.module).definitions[place.name]
                assert isinstance(handed_to, ast.FunctionDef)
                name = handed_to.args.args[number].arg
                yield from _calls_on(name, handed_to, place.module)
    named = sum(unparse(n) == client for n in ast.walk(function) if isinstance(n, ast.expr))
    assert named == understood, f"{origin}: {function.name} does more with its client than is seen"
