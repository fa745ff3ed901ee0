"""Pages of every public name with its signature and docstring, made when the site is built.

Which methods are for users is said by the hand-written reference, which a test compares with the
code; what that does not name is left out here too.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import textwrap
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

MODULES: Final = (
    *("fifoq", "fifoq.sync", "fifoq.testing", "fifoq.server", "fifoq.spark"),
    *("fifoq.spark.pipelines", "actors", "actors.testing", "store"),
)
REFERENCE: Final = Path(__file__).parents[1] / "docs/reference"


def modules() -> list[str]:
    """Those of MODULES that are there."""
    return [name for name in MODULES if importlib.util.find_spec(name)]


def page(name: str) -> str:
    """One module: its docstring, then every public name in the order of its `__all__`."""
    module = importlib.import_module(name)
    known = _documented()
    parts = [f"# `{name}`", "*Made from the docstrings.*", _prose(module)]
    parts += [_entry(module, public, known) for public in sorted(module.__all__)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _documented() -> set[str]:
    """Every call that a page of the reference names."""
    text = "".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    return set(re.findall(r"`(?:\w+\.)*(\w+)\(", text))


def _entry(module: ModuleType, name: str, known: set[str]) -> str:
    value = getattr(module, name)
    if inspect.ismodule(value):
        return ""
    parts = [f"## `{name}`"]
    if inspect.isclass(value):
        parts += [_code("class", name, value), _prose(value), _fields(value)]
        parts += [_method(value, method) for method in _methods(value, known)]
    elif callable(value):
        parts += [_code("def", name, value), _prose(value)]
    else:
        parts.append(_prose(type(value)) if type(value).__module__ != "builtins" else "A value.")
    return "\n\n".join(part for part in parts if part)


def _methods(owner: type, known: set[str]) -> list[str]:
    """Its own and inherited ones from our packages, in alphabetical order."""
    return sorted(
        {
            name
            for base in owner.__mro__
            if base.__module__.partition(".")[0] in ("fifoq", "actors", "store")
            for name, value in vars(base).items()
            if not name.startswith("_")
            and name in known
            and (inspect.isroutine(value) or isinstance(value, property))
        }
    )


def _method(owner: type, name: str) -> str:
    value = inspect.getattr_static(owner, name)
    if isinstance(value, property):
        return f"### `{owner.__name__}.{name}`\n\n{_prose(value)}"
    bound = getattr(owner, name)
    kind = "async def" if inspect.iscoroutinefunction(bound) else "def"
    return f"### `{owner.__name__}.{name}()`\n\n{_code(kind, name, bound)}\n\n{_prose(bound)}"


def _code(kind: str, name: str, value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (NameError, TypeError, ValueError):
        return ""
    if kind == "class":
        if issubclass(value, BaseException):
            bases = ", ".join(base.__name__ for base in value.__bases__)
            return f"```python\nclass {name}({bases})\n```"
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    return f"```python\n{_shaped(f'{kind} {name}', _plain(signature))}\n```"


class _Words(str):
    """An annotation that is shown as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _plain(signature: inspect.Signature) -> inspect.Signature:
    """Without `self`, and without quotes around annotations that are kept as text."""
    given = [
        parameter.replace(annotation=_words(parameter.annotation))
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return signature.replace(
        parameters=given, return_annotation=_words(signature.return_annotation)
    )


def _words(annotation: Any) -> Any:
    return _Words(annotation) if isinstance(annotation, str) else annotation


def _shaped(head: str, signature: inspect.Signature) -> str:
    """On one line where it fits, otherwise a line for each parameter."""
    # Objects that a default names by their place in memory would differ from build to build.
    line = re.sub(r"<(\w+)[^<>]* at 0x\w+>", r"\1", f"{head}{signature}")
    if len(line) <= 88 or not signature.parameters:
        return line
    inner = line[len(head) + 1 : line.rindex(")")]
    rest = line[line.rindex(")") :]
    lines = [f"    {part}," for part in _parameters(inner)]
    return "\n".join([f"{head}(", *lines, rest])


def _parameters(text: str) -> list[str]:
    """Parted at commas that are in no bracket and no string."""
    parts, depth, quoted, start = [], 0, "", 0
    for place, sign in enumerate(text):
        if quoted:
            quoted = "" if sign == quoted else quoted
        elif sign in "'\"":
            quoted = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and not depth:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


def _prose(value: object) -> str:
    """The docstring as Markdown: what looks like a tag is text."""
    text = inspect.getdoc(value) or ""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def _fields(owner: type) -> str:
    """Fields that have a string below them, as the source has it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return ""
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    rows = []
    for field, below in pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        text = _text(below)
        if text is not None and not field.target.id.startswith("_"):
            said = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
            rows.append(f"| `{field.target.id}` | {said} |")
    return "\n".join(["| field | |", "|---|---|", *rows]) if rows else ""


def _text(node: ast.stmt) -> str | None:
    """What a statement says that is nothing but a string."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else None
    return None
