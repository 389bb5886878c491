"""Programs that a role puts on hosts, as modules for a test. Their files carry no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROLES = Path(__file__).parents[2] / "roles"


def load(role: str, name: str) -> ModuleType:
    """The program `roles/<role>/files/<name>.py`; the same object at each call."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROLES / role / "files" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    return sys.modules[name]
