"""Every key of a configuration with its type, default and meaning, as its dataclasses say it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from . import config
from .configfile import toml_value


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes
    ----------
    name : with its table, as model.width
    default : as TOML
    choices : all that is accepted, as TOML; empty where that is no list
    meaning : in a sentence
    """

    name: str
    default: str
    choices: tuple[str, ...]
    meaning: str


def keys(kind: type[Any] = config.TrainConfig, prefix: str = "") -> Iterator[Key]:
    """All keys in the order of the file."""
    told, hints = meanings(kind), typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            yield from keys(hint, f"{prefix}{field.name}.")
            continue
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        words = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
        choices = tuple(toml_value(word) for word in words)
        yield Key(prefix + field.name, toml_value(default), choices, told.get(field.name, ""))


def meanings(kind: type[Any]) -> dict[str, str]:
    """The text under each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def listing(width: int = 100) -> str:
    """For a terminal: each table, each key with its default, and what it means below."""
    lines, table = list[str](), ""
    for key in keys():
        owner, _, name = key.name.rpartition(".")
        if owner != table:
            table = owner
            lines += ["", f"[{table}]"]
        choices = f"  ({' | '.join(key.choices)})" if key.choices else ""
        lines.append(f"{name} = {key.default}{choices}")
        lines += textwrap.wrap(key.meaning, width, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines).strip()
