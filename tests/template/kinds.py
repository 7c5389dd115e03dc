"""Reads Leeway's modules: where names are defined, and what class an expression has.

Annotations give the class. Where they do not, the expression may be anything.
"""

import ast
import builtins
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers" / "leeway"


class Place(NamedTuple):
    """A definition at the top level of a module. Without a name, it is the module itself."""

    module: str
    name: str


class Kind(NamedTuple):
    """What an object is, as an annotation in a module says it."""

    written: ast.expr
    module: str


type Kinds = tuple[Kind, ...] | None
"""What an expression may be; None if it may be anything."""

ANYTHING = {"Any", "Self", "object"}
BUILT_IN = {"bool", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"}
MAPPINGS = {"Mapping", "dict"}
WITH_ELEMENTS = {"Collection", "Iterable", "Iterator", "Sequence", "frozenset", "list", "set"}
LITERALS = (
    ast.Compare,
    ast.Constant,
    ast.Dict,
    ast.DictComp,
    ast.GeneratorExp,
    ast.JoinedStr,
    ast.List,
    ast.ListComp,
    ast.Set,
    ast.SetComp,
    ast.Tuple,
)
"""Objects that are not of classes of Leeway."""

PROPERTIES = {"cached_property", "property"}
KEEP_THE_RESULT = {"abstractmethod", "cache", "classmethod", "staticmethod"}
"""Decorators of functions that return what their annotations say."""


class Module:
    """The code of a module, by name. Imports under TYPE_CHECKING are only for annotations."""

    def __init__(self, module: str) -> None:
        self.imports: dict[str, Place] = {}
        self.imports_for_types: dict[str, Place] = {}
        self.foreign: set[str] = set()
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.run_on_import: list[ast.stmt] = []
        tree = ast.parse(file_of(module).read_text())
        for_types = {n for test in ast.walk(tree) if _is_for_types(test) for n in ast.walk(test)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.foreign |= set(names_imported(node))
            elif isinstance(node, ast.ImportFrom):
                self._import(node, self.imports_for_types if node in for_types else self.imports)
        imports = (ast.Import, ast.ImportFrom)
        for statement in tree.body:
            if statement not in for_types and not isinstance(statement, imports):
                self._define(statement)

    def _import(self, node: ast.ImportFrom, imports: dict[str, Place]) -> None:
        assert node.module
        if not node.module.startswith("leeway"):
            self.foreign |= set(names_imported(node))
            return
        for alias in node.names:
            below = f"{node.module}.{alias.name}"
            is_module = file_of(below).exists()
            place = Place(below, "") if is_module else Place(node.module, alias.name)
            imports[alias.asname or alias.name] = place

    def _define(self, statement: ast.stmt) -> None:
        names = set()
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names = {statement.name}
        elif isinstance(statement, ast.TypeAlias):
            names = {statement.name.id}
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            stored = [n for target in targets for n in ast.walk(target)]
            names = {n.id for n in stored if isinstance(n, ast.Name)}
        else:
            self.run_on_import.append(statement)
        for name in names:
            self.definitions.setdefault(name, []).append(statement)

    def of_module(self, node: ast.Attribute) -> Place | None:
        """Return the place that an attribute of an imported module is; None for others."""
        held = self.imports.get(node.value.id) if isinstance(node.value, ast.Name) else None
        return Place(held.module, node.attr) if held and not held.name else None


@cache
def module_of(module: str) -> Module:
    """Read a module, once."""
    return Module(module)


def file_of(module: str) -> Path:
    """Return the file of a module of the layer or of a function."""
    path = (ROOT if module.startswith("functions.") else LAYER).joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def names_imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Return the names that an import binds."""
    return ((alias.asname or alias.name).partition(".")[0] for alias in node.names)


@cache
def place_of(module: str, name: str) -> Place | None:
    """Return where a name of a module is defined; None if not in Leeway."""
    found = module_of(module)
    if name in found.definitions:
        return Place(module, name)
    if held := found.imports.get(name) or found.imports_for_types.get(name):
        return place_of(*held) if held.name else None
    return None


def definition_of(place: Place) -> ast.stmt:
    """Return the definition at a place."""
    return module_of(place.module).definitions[place.name][0]


def class_of(place: Place) -> ast.ClassDef:
    """Return the class at a place."""
    found = definition_of(place)
    assert isinstance(found, ast.ClassDef), place
    return found


@cache
def methods_of(place: Place) -> tuple[ast.FunctionDef, ...]:
    """Return the methods that a class defines."""
    return tuple(one for one in class_of(place).body if isinstance(one, ast.FunctionDef))


@cache
def _bases(place: Place) -> tuple[tuple[str, Place | None], ...]:
    """Return the names of a class's bases, and where those of Leeway are defined."""
    found = []
    for base in class_of(place).bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        own = place_of(place.module, name.id) if isinstance(name, ast.Name) else None
        found.append((ast.unparse(name).rpartition(".")[2], own))
    return tuple(found)


@cache
def lineage(place: Place) -> tuple[Place, ...]:
    """Return a class and the classes of Leeway that it inherits from."""
    above = [one for _, base in _bases(place) if base for one in lineage(base)]
    return (place, *above)


@cache
def foreign_bases(place: Place) -> frozenset[str]:
    """Return the classes of libraries that a class inherits from."""
    return frozenset(name for each in lineage(place) for name, own in _bases(each) if not own)


@cache
def may_be(place: Place, on: Place) -> bool:
    """Whether the methods of a class may be called on what an annotation says is of class `on`."""
    if place in lineage(on) or on in lineage(place):
        return True
    return "Protocol" in foreign_bases(on) and _names(on) <= _names(place)


@cache
def _names(place: Place) -> frozenset[str]:
    """Return the names of a class's methods."""
    return frozenset(method.name for each in lineage(place) for method in methods_of(each))


def marks_of(method: ast.FunctionDef) -> set[str]:
    """Return the names of the decorators of a function."""
    return {ast.unparse(one).partition("(")[0] for one in method.decorator_list}


class Scope:
    """Code with what is known of its names; `inside` is the class that it belongs to."""

    def __init__(self, code: ast.AST, module: str, inside: Place | None = None) -> None:
        self.code = code
        self.module = module
        self.parameters: set[str] = set()
        self.data: set[ast.AST] = set()
        """Values that are no methods: something is read of them, or they are compared."""
        self._inside = inside
        self._values: dict[str, list[tuple[str, ast.expr | None]]] = {}
        self._asked: set[str] = set()
        if isinstance(code, ast.FunctionDef):
            self.parameters = {one.arg for one in _parameters(code.args)}
        for node in ast.walk(code):
            self._bind(node)
            if isinstance(node, ast.Attribute | ast.Subscript | ast.FormattedValue):
                self.data.add(node.value)
            elif isinstance(node, ast.Compare):
                self.data |= {node.left, *node.comparators}
            elif isinstance(node, ast.For | ast.comprehension):
                self.data.add(node.iter)

    def _bind(self, node: ast.AST) -> None:
        """Note what a node binds to names."""
        match node:
            case ast.FunctionDef() | ast.Lambda():
                for one in _parameters(node.args):
                    self._values.setdefault(one.arg, []).append(("is", one.annotation))
                for many in filter(None, (node.args.vararg, node.args.kwarg)):
                    self._values.setdefault(many.arg, []).append(("is", None))
            case ast.AnnAssign(target=ast.Name(id=name)):
                self._values.setdefault(name, []).append(("is", node.annotation))
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, "value", node.value)
            case ast.NamedExpr():
                self._assign(node.target, "value", node.value)
            case ast.For() | ast.comprehension():
                self._assign(node.target, "element", node.iter)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._assign(target, "is", None)
            case (
                ast.ExceptHandler(name=str() as name)
                | ast.MatchAs(name=str() as name)
                | ast.MatchStar(name=str() as name)
                | ast.MatchMapping(rest=str() as name)
            ):
                self._values.setdefault(name, []).append(("is", None))

    def _assign(self, target: ast.expr, how: str, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._values.setdefault(target.id, []).append((how, value))
        elif isinstance(target, ast.Starred):
            self._assign(target.value, "is", None)
        elif isinstance(target, ast.Tuple | ast.List):
            simple = how in {"value", "element"} and not any(
                isinstance(one, ast.Starred) for one in target.elts
            )
            for number, one in enumerate(target.elts):
                if how == "value" and isinstance(value, ast.Tuple) and simple:
                    self._assign(one, how, value.elts[number])
                elif simple:
                    self._assign(one, f"{how} {number}", value)
                else:
                    self._assign(one, "is", None)

    def values_of(self, name: str) -> list[ast.expr]:
        """Return the values that are assigned to a name."""
        return [value for how, value in self._values.get(name, ()) if how == "value" and value]

    def kinds_of(self, node: ast.expr) -> Kinds:
        """Return what an expression may be."""
        match node:
            case ast.Name():
                return self._kinds_of_name(node.id)
            case ast.Attribute():
                if place := module_of(self.module).of_module(node):
                    return _kinds_at(place)
                return _each(self.kinds_of(node.value), lambda kind: _member(kind, node.attr))
            case ast.Call():
                return _each(self.kinds_of(node.func), _returned)
            case ast.Subscript() if not isinstance(node.slice, ast.Slice):
                return _each(self.kinds_of(node.value), lambda kind: _value(kind) or _element(kind))
            case ast.IfExp():
                return _both(self.kinds_of(node.body), self.kinds_of(node.orelse))
            case ast.BoolOp():
                found: Kinds = ()
                for value in node.values:
                    found = _both(found, self.kinds_of(value))
                return found
            case ast.NamedExpr():
                return self.kinds_of(node.value)
            case ast.Constant(value=None):
                return ()
        return (Kind(ast.Name("object"), self.module),) if isinstance(node, LITERALS) else None

    def _kinds_of_name(self, name: str) -> Kinds:
        if name in {"self", "cls"} and self._inside:
            return (_kind_of(self._inside),)
        if name not in self._values:
            return _kinds_at(Place(self.module, name))
        if name in self._asked:
            return None
        self._asked.add(name)
        found: Kinds = ()
        for how, value in self._values[name]:
            found = _both(found, self._kinds_of_value(how, value) if value else None)
        self._asked.remove(name)
        return found

    def _kinds_of_value(self, how: str, value: ast.expr) -> Kinds:
        if how == "is":
            return _split(Kind(value, self.module))
        step, _, number = how.partition(" ")
        found = self.kinds_of(value)
        if step == "element":
            found = _each(found, _element)
        return _each(found, lambda kind: _part(kind, int(number))) if number else found


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _both(first: Kinds, second: Kinds) -> Kinds:
    return None if first is None or second is None else first + second


def _each(kinds: Kinds, step: Callable[[Kind], Kinds]) -> Kinds:
    """Return what a step leads to from each of these kinds."""
    found: Kinds = () if kinds else None
    for kind in kinds or ():
        found = _both(found, step(kind))
    return found


def _kind_of(place: Place) -> Kind:
    """Return the kind of the objects of a class. A class itself has the same."""
    return Kind(ast.Name(place.name), place.module)


def place_in(kind: Kind) -> Place | None:
    """Return the class of Leeway that objects of a kind have; None if they have another."""
    named = kind.written
    return place_of(kind.module, named.id) if isinstance(named, ast.Name) else None


def _is_foreign(module: str, name: str) -> bool:
    return name in module_of(module).foreign or hasattr(builtins, name)


@cache
def _kinds_at(place: Place) -> Kinds:
    """Return what the name of a definition may stand for."""
    found = place_of(*place)
    if found is None:
        foreign = _is_foreign(*place) and place.name not in ANYTHING
        return (_kind_of(place),) if foreign else None
    match definition_of(found):
        case ast.ClassDef():
            return (_kind_of(found),)
        case ast.FunctionDef() as function:
            return (_callable(function, found.module),)
        case ast.AnnAssign() as constant:
            return _split(Kind(constant.annotation, found.module))
        case ast.Assign(value=ast.Call() as made):
            return Scope(made, found.module).kinds_of(made)
    return None


def _callable(function: ast.FunctionDef, module: str) -> Kind:
    """Return the kind of a function."""
    known = marks_of(function) <= KEEP_THE_RESULT
    returns = function.returns if known and function.returns else ast.Name("Any")
    parts = ast.Tuple([ast.Constant(...), returns])
    return Kind(ast.Subscript(ast.Name("Callable"), parts), module)


def _split(kind: Kind) -> Kinds:
    """Return the parts of an annotation: those of unions and of named types."""
    written, module = kind
    if isinstance(written, ast.Constant):
        text = written.value
        return _split(Kind(_parsed(text), module)) if isinstance(text, str) else ()
    if isinstance(written, ast.BinOp):
        return _both(_split(Kind(written.left, module)), _split(Kind(written.right, module)))
    name = written.value if isinstance(written, ast.Subscript) else written
    if isinstance(name, ast.Attribute):
        place = module_of(module).of_module(name)
        return _kinds_at(place) if place else None
    if not isinstance(name, ast.Name) or name.id in ANYTHING:
        return None
    place = place_of(module, name.id)
    if place is None:
        return (kind,) if _is_foreign(module, name.id) or name.id in KNOWN else None
    match definition_of(place):
        case ast.TypeAlias() as alias:
            return _split(Kind(alias.value, place.module))
        case ast.ClassDef():
            return (_kind_of(place),)
    return None


KNOWN = {"Callable", "Iterable"}
"""Names that this file writes into annotations."""


def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _member(kind: Kind, name: str) -> Kinds:
    """Return what an attribute of such an object may be."""
    if returned := _returned_by_mapping(kind, name):
        return (Kind(_parsed(f"Callable[..., {returned}]"), kind.module),)
    place = place_in(kind)
    for each in lineage(place) if place else ():
        for part in class_of(each).body:
            match part:
                case ast.FunctionDef(name=found) if found == name:
                    if not marks_of(part) & PROPERTIES:
                        return (_callable(part, each.module),)
                    return _split(Kind(part.returns, each.module)) if part.returns else None
                case ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                    return _split(Kind(part.annotation, each.module))
                case ast.FunctionDef(name="__init__"):
                    if kinds := _set_by(part, each, name):
                        return kinds
    return None


def _returned_by_mapping(kind: Kind, method: str) -> str:
    """Return the annotation of what a method of a mapping returns; empty for other objects."""
    match kind.written:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[one, other])):
            key, value = ast.unparse(one), ast.unparse(other)
            returned = {
                "get": f"{value} | None",
                "items": f"Iterable[tuple[{key}, {value}]]",
                "setdefault": value,
                "values": f"Iterable[{value}]",
            }
            return returned.get(method, "") if name in MAPPINGS else ""
    return ""


@cache
def _set_by(constructor: ast.FunctionDef, place: Place, name: str) -> Kinds:
    """Return what a constructor sets an attribute to."""
    for node in ast.walk(constructor):
        match node:
            case ast.AnnAssign(target=ast.Attribute(attr=found)) if found == name:
                return _split(Kind(node.annotation, place.module))
            case ast.Assign(targets=[ast.Attribute(attr=found)]) if found == name:
                return Scope(constructor, place.module, place).kinds_of(node.value)
    return None


def _returned(kind: Kind) -> Kinds:
    """Return what the call of such an object returns."""
    match kind.written:
        case ast.Subscript(value=ast.Name(id="Callable"), slice=ast.Tuple(elts=[_, returned])):
            return _split(Kind(returned, kind.module))
        case ast.Name(id=name) if name in BUILT_IN:
            return (kind,)
    place = place_in(kind)
    return (kind,) if place and "__call__" not in _names(place) else None


def _value(kind: Kind) -> Kinds:
    """Return what the values of a mapping are."""
    returned = _returned_by_mapping(kind, "setdefault")
    return _split(Kind(_parsed(returned), kind.module)) if returned else None


def _element(kind: Kind) -> Kinds:
    """Return what the elements of such an object are."""
    match kind.written:
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[one, ast.Constant()])):
            return _split(Kind(one, kind.module))
        case ast.Subscript(value=ast.Name(id=name), slice=one) if name in WITH_ELEMENTS:
            return _split(Kind(one, kind.module))
    return None


def _part(kind: Kind, number: int) -> Kinds:
    """Return what is at a place of a tuple."""
    match kind.written:
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            if ast.unparse(parts[-1]) != "...":
                return _split(Kind(parts[number], kind.module))
    return _element(kind)
