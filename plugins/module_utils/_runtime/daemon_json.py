# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Docker's daemon.json with our runtime in it, and without it again (host-contract 6.3). Pure functions on texts.

Everything else in the file keeps its value and its place. What the file was like is handed back as an undo, so that
removal restores it.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

RUNTIME = "lium-rdma"
WRAPPER = "/usr/local/bin/lium-rdma-runc"
POD = "pod"
HOST = "host"

_MEMLOCK = {"Name": "memlock", "Hard": -1, "Soft": -1}
# Runtimes that Docker knows without an entry, and the program behind them.
_STOCK = {"runc": "runc", "io.containerd.runc.v2": "runc"}


class DaemonJsonError(Exception):
    """The file cannot be taken as it is, and stays untouched. The text names the place and what to do."""


class Merged(NamedTuple):
    """The text to write, the command that stands behind our runtime, and how to get back. JSON types only in `undo`.

    `undo` holds ``file`` (whether there was one), ``default-runtime`` (None for none), ``runtimes``, ``ulimits``
    (whether the file had these objects), ``memlock`` (its entry or None) and ``chain`` (the command behind).
    """

    text: str
    chain: list[str]
    undo: dict[str, Any]


def load(text: str) -> dict[str, Any]:
    """The settings; an empty text, blanks, or a byte order mark before an object are what Docker takes as well."""
    bare = text.removeprefix("\ufeff")
    if not bare.strip():
        return {}
    try:
        settings = json.loads(
            bare, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole
        )
    except json.JSONDecodeError as exc:
        raise DaemonJsonError(
            f"not JSON at line {exc.lineno}, column {exc.colno} ({exc.msg}): {_line(bare, exc.lineno)!r}. "
            "Docker cannot read it either: correct it, or restore it from a backup"
        ) from exc
    except RecursionError as exc:
        raise DaemonJsonError("nested too deeply to be settings of Docker") from exc
    if not isinstance(settings, dict):
        kind = {list: "a list", str: "a text"}.get(type(settings), "a single value")
        raise DaemonJsonError(f"{kind} at line 1, column 1, where an object is wanted: {_line(bare, 1)!r}")
    for key in ("runtimes", "default-ulimits"):
        if not isinstance(settings.get(key, {}), dict):
            raise DaemonJsonError(f"{key} is {json.dumps(settings[key])}, where an object is wanted")
    if not isinstance(settings.get("default-runtime", ""), str):
        raise DaemonJsonError(f"default-runtime is {json.dumps(settings['default-runtime'])}, where a name is wanted")
    return settings


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip()[:60] if number <= len(lines) else ""


def _no_key_twice(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DaemonJsonError(f"the key {twice!r} stands there twice: keep one of them")
    return made


def _no_constant(name: str) -> Any:
    raise DaemonJsonError(f"{name} is no JSON: Docker cannot read it either")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise DaemonJsonError(f"{text[:40]} is too large a number: Docker cannot read it either")
    return value


def _whole(text: str) -> int:
    _finite(text)  # as Docker reads it; Python has a limit of its own for the digits
    return int(text)


def _dump(settings: Mapping[str, Any], like: str) -> str:
    """In the indentation of the text before, so that a diff shows what has changed."""
    indent = re.search(r"^([ \t]+)\S", like, re.MULTILINE)
    text = json.dumps(settings, indent=indent[1] if indent else 4, ensure_ascii=False, allow_nan=False)
    # Half a surrogate pair cannot be written; the other range stands for bytes that were no UTF-8 and go back as such.
    text = re.sub("[\ud800-\udc7f\udd00-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
    return text + ("" if like.strip() and not like.endswith("\n") else "\n")


def default_runtime(settings: Mapping[str, Any]) -> str:
    return str(settings.get("default-runtime") or "runc")


def runs_wrapper(settings: Mapping[str, Any], name: str) -> bool:
    """Whether the runtime of this name is ours, under whatever name it stands."""
    entry = settings.get("runtimes", {}).get(name)
    path = str(entry.get("path", "")) if isinstance(entry, dict) else ""
    return name == RUNTIME or path.rsplit("/", 1)[-1] == WRAPPER.rsplit("/", 1)[-1]


def command_of(settings: Mapping[str, Any], name: str) -> list[str]:
    """The command of a runtime. Raises DaemonJsonError for one that cannot stand behind ours."""
    entry = settings.get("runtimes", {}).get(name)
    if entry is None and name in _STOCK:
        return [_STOCK[name]]
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str) or not entry["path"]:
        raise DaemonJsonError(
            f"the default runtime {name!r} has no path in runtimes, so nothing can stand before it; "
            "set default-runtime to one that has, or leave the hook out"
        )
    arguments = entry.get("runtimeArgs") or []
    if not isinstance(arguments, list) or not all(isinstance(part, str) for part in arguments):
        raise DaemonJsonError(f"runtimes.{name}.runtimeArgs is not a list of texts")
    return [entry["path"], *arguments]


def install(text: str | None, scope: str, undo: Mapping[str, Any] | None = None) -> Merged:
    """Adds our runtime to a file (`None` where there is none); with scope ``pod`` it becomes the default.

    `undo` is what an earlier call handed back, if there was one: what stood there before our first call stays known.
    """
    before = text or ""
    settings = load(before)
    default = default_runtime(settings)
    ours = runs_wrapper(settings, default)
    if ours and (scope == HOST or default != RUNTIME):
        raise DaemonJsonError(
            f"default-runtime {default} puts RDMA devices into every container of this host, rentals of a part of it "
            "as well; set it back to what it was (runc, or nvidia), reload Docker, and run again"
        )
    known = dict(undo or {})
    made = {
        "file": text is not None,
        "default-runtime": settings.get("default-runtime"),
        "runtimes": "runtimes" in settings,
        "ulimits": "default-ulimits" in settings,
        "memlock": settings.get("default-ulimits", {}).get("memlock"),
    }
    if ours:
        # Our own work of before; without its undo nothing else is known to be behind us than runc.
        made.update({"default-runtime": None, "runtimes": True, "ulimits": True, "memlock": None})
    made.update({key: known[key] for key in made if key in known})
    if not ours:
        made["default-runtime"] = settings.get("default-runtime")  # someone may have chosen another one since
    chain = list(known.get("chain") or ["runc"]) if ours else command_of(settings, default)
    settings.setdefault("runtimes", {})[RUNTIME] = {"path": WRAPPER}
    if scope == POD:
        settings["default-runtime"] = RUNTIME
        settings.setdefault("default-ulimits", {})["memlock"] = dict(_MEMLOCK)
    same = text is not None and settings == load(before)
    return Merged(before if same else _dump(settings, before), chain, {**made, "chain": chain})


def remove(text: str, undo: Mapping[str, Any]) -> str | None:
    """Takes our runtime out and restores what stood there before; None where there was no file and nothing is left."""
    settings = load(text)
    runtimes = settings.get("runtimes", {})
    # Gone already, with the undo still there: a removal was cut short, and the default is that of `for_reload`.
    cut_short = runtimes.pop(RUNTIME, None) is None and "default-runtime" in undo
    if cut_short and undo["default-runtime"] is None and settings.get("default-runtime") == "runc":
        del settings["default-runtime"]
    if not runtimes and not undo.get("runtimes"):
        settings.pop("runtimes", None)
    if settings.get("default-runtime") == RUNTIME:
        if undo.get("default-runtime") is None:
            del settings["default-runtime"]
        else:
            settings["default-runtime"] = undo["default-runtime"]
    limits = settings.get("default-ulimits", {})
    if "ulimits" in undo and limits.get("memlock") == _MEMLOCK and undo.get("memlock") != _MEMLOCK:
        del limits["memlock"]
        if undo["memlock"] is not None:
            limits["memlock"] = undo["memlock"]
        if not limits and not undo["ulimits"]:
            del settings["default-ulimits"]
    if not settings and not undo.get("file", True):
        return None
    return text if settings == load(text) else _dump(settings, text)


def for_reload(text: str | None, default: str) -> str:
    """The text with its runtimes named, and `default` as the default one where that is a name and the text has none.

    By a reload Docker keeps the runtimes and the default that it has, unless the file names others.
    """
    settings = load(text or "")
    named = {**settings, "runtimes": settings.get("runtimes", {})}
    if default and not settings.get("default-runtime"):
        named["default-runtime"] = default
    return _dump(named, text or "")


# Flags of dockerd whose key in the file is another word.
_FLAG_KEYS = {
    "host": "hosts",
    "dns-opt": "dns-opts",
    "exec-opt": "exec-opts",
    "label": "labels",
    "insecure-registry": "insecure-registries",
    "registry-mirror": "registry-mirrors",
    "storage-opt": "storage-opts",
    "log-opt": "log-opts",
    "default-ulimit": "default-ulimits",
    "default-address-pool": "default-address-pools",
    "add-runtime": "runtimes",
    "authorization-plugin": "authorization-plugins",
    "cluster-store-opt": "cluster-store-opts",
    "graph": "data-root",
    "node-generic-resource": "node-generic-resources",
}
_SHORT = {"H": "hosts", "D": "debug", "l": "log-level", "s": "storage-driver", "g": "data-root", "G": "group"}
_SHORT |= {"b": "bridge", "p": "pidfile"}


def flag_conflicts(settings: Mapping[str, Any], command: str | Sequence[str]) -> list[str]:
    """Keys of the file that dockerd's command line sets as well: with one of them Docker does not start.

    `command` is the unit's text (``ExecStart=/usr/bin/dockerd -H fd://``) or the words of a running daemon.
    """
    words = shlex.split(command.replace("\\\n", " ")) if isinstance(command, str) else list(command)
    keys = set()
    for word in words:
        name = word.lstrip("-").partition("=")[0]
        if word.startswith("--"):
            keys.add(_FLAG_KEYS.get(name, name))
        elif word.startswith("-") and len(word) > 1:
            keys.add(_SHORT.get(word[1], word[1:]))
    return sorted(keys & set(settings))
