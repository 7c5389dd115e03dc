"""Derives the AWS actions of a function from its code.

It reads the handler, the objects that wiring builds for it, and of each adapter only the methods
that a module of the function names.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import boto3

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers" / "leeway"

PROBES = "leeway.wiring.probes"
"""It serves all functions, and asks for rights that others give: test_probes.py compares them."""

IAM_NAMES = {
    "lambda:Invoke": "lambda:InvokeFunction",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
}
"""Operations whose permission has another name."""


def actions_reached_by(function: str) -> set[str]:
    """Return the AWS actions that a function (a folder of functions/) can call, as IAM names
    them."""
    reach = _Reach()
    reach.module(_parsed(ROOT / "functions" / function / "handler.py"))
    return {action for adapter in reach.adapters for action in reach.actions_of(adapter)}


def methods_named_by(function: str) -> set[str]:
    """Return the methods of ports that the code of a function (a folder of functions/) names."""
    reach = _Reach()
    reach.module(_parsed(ROOT / "functions" / function / "handler.py"))
    return reach.named


class _Reach:
    """The reachable modules, functions of wiring, and adapters."""

    def __init__(self) -> None:
        self.adapters: dict[str, tuple[str, ...]] = {}
        self.named: set[str] = set()
        self._seen: set[str] = set()

    def module(self, tree: ast.Module) -> None:
        """Add everything that a module names, and every module of Leeway that it imports."""
        self.named |= _methods_named(tree, on_names=False)
        for origin, name in _imports(tree).values():
            self._follow(origin, name)

    def _follow(self, origin: str, name: str) -> None:
        if f"{origin}:{name}" in self._seen:
            return
        self._seen.add(f"{origin}:{name}")
        if origin == PROBES:
            return
        if origin.startswith("leeway.wiring"):
            self._wiring(origin, name)
        elif not origin.startswith("leeway.aws") and origin not in self._seen:
            self._seen.add(origin)
            self.module(_parsed(_file(origin)))

    def _wiring(self, origin: str, name: str) -> None:
        """Add a function or setting of wiring, and the objects that it builds."""
        tree = _parsed(_file(origin))
        imports = _imports(tree)
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or node.name != name:
                continue
            self.named |= _methods_named(node, on_names=True)
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and (services := _services_of(call)):
                    adapter = ast.unparse(call.func)
                    self.adapters[f"{imports[adapter][0]}:{adapter}"] = services
            for used in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - {name}:
                self._follow(*imports.get(used, (origin, used)))

    def actions_of(self, adapter: str) -> Iterator[str]:
        """Return the actions of the named methods of adapters."""
        origin, _, name = adapter.partition(":")
        services = self.adapters[adapter]
        for service, held in zip(services, _clients_of(origin, name, services), strict=True):
            operations = boto3.client(service, region_name="us-east-1").meta.method_to_api_mapping
            for method in _client_calls(origin, name, held, self._everything_named()):
                action = f"{service}:{operations[method]}"
                yield IAM_NAMES.get(action, action)

    def _everything_named(self) -> set[str]:
        """Add the methods that adapters call on each other."""
        classes = [_class(*adapter.split(":")) for adapter in self.adapters]
        return self.named.union(*(_methods_named(found, on_names=False) for found in classes))


def _clients_of(origin: str, name: str, services: tuple[str, ...]) -> list[str]:
    """Return how a class calls its clients, in the order of its parameters."""
    if len(services) == 1:
        return ["self._client()"]
    (made,) = [
        one
        for one in _class(origin, name).body
        if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    ]
    return [f"self._{one.arg}()" for one in made.args.args[1 : len(services) + 1]]


def _client_calls(origin: str, name: str, client: str, named: set[str]) -> Iterator[str]:
    """Return the boto3 methods and paginators that these methods of a class call on a client."""
    methods = {m.name: m for m in _class(origin, name).body if isinstance(m, ast.FunctionDef)}
    reached = {m for m in methods if m in named and not m.startswith("_")}
    todo = list(reached)
    while todo:
        attributes = {n.attr for n in ast.walk(methods[todo.pop()]) if isinstance(n, ast.Attribute)}
        more = (attributes & methods.keys()) - reached
        reached |= more
        todo += more
    for method in reached:
        yield from _calls_on(client, methods[method], origin)


def _calls_on(client: str, function: ast.FunctionDef, origin: str) -> Iterator[str]:
    """Return the boto3 methods and paginators that a function calls on a client, and those of
    functions that get the client from it. Other uses of the client are not detected."""
    understood = 0
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == client:
            understood += 1
            paginated = call.func.attr == "get_paginator"
            yield str(ast.literal_eval(call.args[0])) if paginated else call.func.attr
        for place, argument in enumerate(call.args):
            if ast.unparse(argument) == client:
                understood += 1
                handed_to, where = _function(ast.unparse(call.func), origin)
                yield from _calls_on(handed_to.args.args[place].arg, handed_to, where)
    named = sum(ast.unparse(n) == client for n in ast.walk(function) if isinstance(n, ast.expr))
    assert named == understood, f"{origin}: {function.name} does more with its client than is seen"


def _function(name: str, origin: str) -> tuple[ast.FunctionDef, str]:
    """Return the function of a module with this name, or the imported one, with its module."""
    tree = _parsed(_file(origin))
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    if found:
        return found[0], origin
    where, there = _imports(tree)[name]
    return _function(there, where)


def _methods_named(tree: ast.AST, *, on_names: bool) -> set[str]:
    """Return the methods that are called, bound by `partial`, or run under a report's `guard`. Use
    cases call those of ports on their attributes (`self._records.write`) or on a local name; wiring
    calls them on any name."""
    held = {name for name, value in _assigned(tree) if isinstance(value, ast.Attribute)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    put_off = [call.args[0] for call in calls if ast.unparse(call.func) == "partial" and call.args]
    guarded = [call.args[1] for call in calls if ast.unparse(call.func).endswith(".guard")]
    functions = [call.func for call in calls] + put_off + guarded
    return {
        function.attr
        for function in functions
        if isinstance(function, ast.Attribute)
        and (on_names or not isinstance(function.value, ast.Name) or function.value.id in held)
        and ast.unparse(function.value) != "self._client()"
    }


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Return every assigned name with its value."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(map(ast.unparse, target.elts), node.value.elts, strict=False)
            else:
                yield ast.unparse(target), node.value


def _services_of(call: ast.Call) -> tuple[str, ...]:
    """Return the services of an adapter's clients: `Adapter(partial(client, "ec2"), …)`."""
    found = []
    for argument in call.args:
        put_off = ("partial(client, ", "partial(background_client, ")
        if not isinstance(argument, ast.Call) or not ast.unparse(argument).startswith(put_off):
            break
        found.append(str(ast.literal_eval(argument.args[1])))
    return tuple(found)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _file(module: str) -> Path:
    path = LAYER.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _class(origin: str, name: str) -> ast.ClassDef:
    (found,) = [
        node
        for node in _parsed(_file(origin)).body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    return found


def _imports(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return the imports of a module from Leeway: name → module and name there."""
    found: dict[str, tuple[str, str]] = {}
    shapes = {node for test in ast.walk(tree) if _is_for_types(test) for node in ast.walk(test)}
    for node in ast.walk(tree):
        if node in shapes:
            continue
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("leeway"):
            continue
        for alias in node.names:
            assert node.module
            below = f"{node.module}.{alias.name}"
            is_module = _file(below).exists()
            origin = below if is_module else node.module
            found[alias.asname or alias.name] = (origin, "" if is_module else alias.name)
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
