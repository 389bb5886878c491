"""A `pulumi` of fixed answers on PATH, for what the real one cannot be made to say; it notes each command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """#!{python}
import json, os, pathlib, shutil, sys
folder = pathlib.Path({folder!r})
arguments = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
answer = json.loads((folder / "answers.json").read_text()).get(" ".join(arguments[:2]))
if answer is None:
    answer = json.loads((folder / "answers.json").read_text()).get(arguments[0], {{}})
if arguments[:2] == ["stack", "import"]:
    shutil.copy(arguments[arguments.index("--file") + 1], folder / "imported.json")
sys.stdout.write(answer.get("stdout", ""))
sys.stderr.write(answer.get("stderr", ""))
sys.exit(answer.get("code", 0))
"""


class PulumiStub:
    """`answers`: first words of a command (`stack export`, `destroy`) → stdout, stderr, code."""

    def __init__(self, folder: Path, **answers: dict[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "pulumi").write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        (folder / "pulumi").chmod(0o755)
        self.answer(**{"config": {"stdout": "{}"}, **answers})

    def answer(self, **answers: dict[str, Any]) -> None:
        """Replaces the answers; `_` in a name stands for a blank."""
        named = {name.replace("_", " "): answer for name, answer in answers.items()}
        (self.folder / "answers.json").write_text(json.dumps(named))

    @property
    def calls(self) -> list[list[str]]:
        """Every command so far, as its arguments."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def imported(self) -> dict[str, Any] | None:
        """The state that was imported last."""
        file = self.folder / "imported.json"
        return dict(json.loads(file.read_text())) if file.exists() else None
