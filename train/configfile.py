"""TOML files and command lines to a checked configuration, and back.

Types are strict: 3.5 is no integer, "3" is no number. Whatever is wrong names the file (or the command
line), the key, what was found and what is expected.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..shards.errors import ConfigError, UsageError
from .config import TrainConfig, check

T = TypeVar("T")
COMMAND_LINE = "command line"


def load_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a TOML file; ``--table.key VALUE`` tokens go before what the file says.

    Raises
    ------
    UsageError : there is no such file
    ConfigError : it is not TOML, or a key, type, value or combination is wrong
    """
    if not path.is_file():
        raise UsageError(f"no configuration {path}; start from one of configs/*.toml")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a text, expected TOML in UTF-8: {error}") from error
    return parse_config(text, str(path), overrides)


def parse_config(text: str, source: str, overrides: Sequence[str] = ()) -> TrainConfig:
    """The same from the text of a file; `source` is its name in errors."""
    try:
        config = build(TrainConfig, tomllib.loads(text), source)
    except ValueError as error:  # of TOML, or of a number with thousands of digits
        raise ConfigError(f"{source}: not TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply, expected tables of keys") from None
    for key, value in parse_overrides(overrides):
        config = replace_key(config, key, value)
    check(config, f"{source} and {COMMAND_LINE}" if overrides else source)
    return config


def build(kind: type[T], table: dict[str, Any], source: str, prefix: str = "") -> T:
    """Make a dataclass of a TOML table, strictly."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in table.items():
        key = prefix + name
        if name not in hints:
            raise ConfigError(f"{source}: unknown key {key}{suggest(key)}")
        if dataclasses.is_dataclass(hints[name]):
            if not isinstance(value, dict):
                raise ConfigError(f"{source}: {key} = {value!r}, expected a table [{key}]")
            values[name] = build(typing.cast(type, hints[name]), value, source, key + ".")
        else:
            values[name] = convert(value, hints[name], source, key)
    return kind(**values)


def convert(value: Any, hint: Any, source: str, key: str) -> Any:
    """Check the type of one value; an integer may stand for a float, nothing else is bent."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if any(value == a and type(value) is type(a) for a in arguments):
            return value
        expected = "one of " + ", ".join(json.dumps(a) for a in arguments)
    elif origin is dict:
        if isinstance(value, dict):
            return {str(k): convert(v, arguments[1], source, f"{key}.{k}") for k, v in value.items()}
        expected = f"a table of {arguments[1].__name__}"
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(convert(v, arguments[0], source, f"{key}[{i}]") for i, v in enumerate(value))
        expected = "a list"
    elif hint in (int, float) and isinstance(value, int) and value.bit_length() > 1000:
        raise ConfigError(f"{source}: {key} is a number of {value.bit_length()} bits, expected at most 64")
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    else:
        expected = {"int": "a whole number", "float": "a number", "str": "a text in quotes",
                    "bool": "true or false"}[hint.__name__]  # fmt: skip
    raise ConfigError(f"{source}: {key} = {value!r}, expected {expected}")


def parse_overrides(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """``--a.b 3``, ``--a.b=3`` and the bare ``--a.b`` (true) to pairs of key and text."""
    pairs: list[tuple[str, str]] = []
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--"):
            raise ConfigError(f"{COMMAND_LINE}: {token!r}, expected --table.key VALUE")
        key, has_value, value = token[2:].partition("=")
        if not has_value:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        pairs.append((key.replace("-", "_"), value))
    return pairs


def replace_key(config: TrainConfig, key: str, text: str) -> TrainConfig:
    """A copy of `config` with the dotted `key` read from the command line."""
    names = key.split(".")
    owners: list[Any] = [config]
    for name in names[:-1]:
        owner = getattr(owners[-1], name, None)
        if not dataclasses.is_dataclass(owner):
            break
        owners.append(owner)
    hints = typing.get_type_hints(type(owners[-1]))
    if len(owners) != len(names) or names[-1] not in hints:
        raise ConfigError(f"{COMMAND_LINE}: unknown option --{key}{suggest(key)}")
    hint = hints[names[-1]]
    if dataclasses.is_dataclass(hint):
        raise ConfigError(f"{COMMAND_LINE}: --{key} is a table, expected one of its keys: --{key}.KEY VALUE")
    value: Any = convert(read_text(text, hint), hint, COMMAND_LINE, "--" + key)
    for owner, name in zip(reversed(owners), reversed(names), strict=True):
        value = dataclasses.replace(owner, **{name: value})
    return typing.cast(TrainConfig, value)


def read_text(text: str, hint: Any) -> Any:
    """A command-line value as the TOML value it stands for; texts need no quotes."""
    if hint is str or (typing.get_origin(hint) is Literal and text not in ("true", "false")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def dotted_keys(kind: type[Any] = TrainConfig, prefix: str = "") -> list[str]:
    """Every key that a configuration may have."""
    keys: list[str] = []
    for name, hint in typing.get_type_hints(kind).items():
        nested = isinstance(hint, type) and dataclasses.is_dataclass(hint)
        keys += dotted_keys(hint, f"{prefix}{name}.") if nested else [prefix + name]
    return keys


def suggest(key: str) -> str:
    """`; did you mean ...?` or the keys there are."""
    known = dotted_keys()
    table, _, last = key.rpartition(".")
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    near = near or [k for k in known if last and k.rpartition(".")[2] == last][:1]
    if near:
        return f"; did you mean {near[0]}?"
    siblings = [k for k in known if k.rpartition(".")[0] == table]
    tables = sorted({k.partition(".")[0] for k in known})
    return "; expected one of " + ", ".join(siblings if table and siblings else tables)


def dump_config(config: TrainConfig) -> str:
    """The whole configuration as TOML; reading it back gives an equal one."""
    lines = [f"seed = {config.seed}"]
    for table in dataclasses.fields(config):
        section = getattr(config, table.name)
        if dataclasses.is_dataclass(section) and not isinstance(section, type):
            lines += ["", f"[{table.name}]"]
            lines += [
                f"{f.name} = {toml_value(getattr(section, f.name))}" for f in dataclasses.fields(section)
            ]
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """One value as TOML; JSON's escapes are TOML's."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items()) + "}"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
