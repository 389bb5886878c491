"""The engine, the language host and the dynamic-provider launcher, with a resource that only writes files.

A failure here means the set-up is broken, not the provider.
"""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path

import pytest

from tests.engine.conftest import MakeStack

pytestmark = pytest.mark.engine

# `gate` names a file: create waits until it exists, so that a test decides when it goes on.
PROGRAM = """
import pathlib, time
import pulumi
from pulumi.dynamic import CreateResult, ReadResult, Resource, ResourceProvider, UpdateResult

class FileProvider(ResourceProvider):
    def create(self, props):
        path = pathlib.Path(props["path"])
        path.write_text(props["text"])
        while props.get("gate") and not pathlib.Path(props["gate"]).exists():
            time.sleep(0.02)
        return CreateResult(str(path), {**props, "size": len(props["text"])})

    def read(self, id_, props):
        if not pathlib.Path(id_).exists():
            return ReadResult("", {})
        return ReadResult(id_, props)

    def update(self, id_, olds, news):
        pathlib.Path(id_).write_text(news["text"])
        return UpdateResult({**news, "size": len(news["text"])})

    def delete(self, id_, props):
        pathlib.Path(id_).unlink(missing_ok=True)

class File(Resource):
    size: pulumi.Output[int]
    def __init__(self, name, path, text, gate=None):
        super().__init__(FileProvider(), name, {"path": path, "text": text, "gate": gate, "size": None})
"""


def declare(path: Path, text: str = "hello", *, gate: Path | None = None) -> str:
    return PROGRAM + (
        f"file = File('one', {str(path)!r}, {text!r}, gate={str(gate) if gate else None!r})\n"
        "pulumi.export('size', file.size)\nprint('the program says hello')\n"
    )


def test_create_leave_update_and_destroy(make_stack: MakeStack, tmp_path: Path) -> None:
    path = tmp_path / "file"
    stack = make_stack(declare(path))
    first = stack.up()
    assert path.read_text() == "hello"
    assert first.outputs == {"size": 5}
    assert first.changes == {"create": 2}
    assert "the program says hello" in first.text
    assert "warning" not in first.text

    assert stack.up().changes == {"same": 2}

    stack.set_program(declare(path, "good day"))
    assert stack.preview().changes == {"update": 1, "same": 1}
    assert path.read_text() == "hello"
    assert stack.up().outputs == {"size": 8}
    assert path.read_text() == "good day"

    assert stack.destroy().changes == {"delete": 2}
    assert not path.exists()
    assert stack.resources() == []


def test_refresh_drops_what_is_gone(make_stack: MakeStack, tmp_path: Path) -> None:
    path = tmp_path / "file"
    stack = make_stack(declare(path))
    stack.up()
    path.unlink()
    assert stack.refresh().changes["delete"] == 1
    assert stack.resources() == []


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("raise ValueError('no such thing')\n", "ValueError: no such thing"),
        ("x = = 2\n", "SyntaxError"),
        ("import module_that_is_missing\n", "No module named 'module_that_is_missing'"),
        ("import sys\nsys.exit(3)\n", "the program ended with sys.exit(3)"),
        ("import pulumi\nraise pulumi.RunError('say only this')\n", "error: say only this"),
        ("import pulumi\npulumi.Output.from_input(1).apply(lambda v: v / 0)\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failing_program_is_reported(make_stack: MakeStack, program: str, says: str) -> None:
    done = make_stack(program).up(ok=False)
    assert says in done.text
    assert "failed to load" not in done.text
    assert "language_host.py" not in done.text


def test_a_program_that_ends_itself_with_success(make_stack: MakeStack) -> None:
    done = make_stack("import sys, pulumi\npulumi.export('x', 1)\nsys.exit(0)\n").up()
    assert done.outputs == {"x": 1}


def test_modules_of_the_program_are_imported_in_both_halves_of_an_update(make_stack: MakeStack) -> None:
    stack = make_stack("import part\n", files={"part.py": "import pulumi\npulumi.export('from_part', 1)\n"})
    done = stack.run("up", "--yes", "--stack", stack.name)  # preview and update
    assert done.text.count("from_part") == 2
    assert stack.outputs() == {"from_part": 1}


@pytest.mark.parametrize("entry", ["sub/", "sub/program.py"])
def test_a_program_that_main_names(make_stack: MakeStack, entry: str) -> None:
    files = {
        "Pulumi.yaml": f"name: engine-test\nruntime: python\nmain: {entry}\n",
        "sub/part.py": "VALUE = 1\n",
        "sub/__main__.py": "import pulumi, part\npulumi.export('by', 'folder')\n",
        "sub/program.py": "import pulumi, part\npulumi.export('by', 'file')\n",
    }
    outputs = make_stack("raise SystemExit('the wrong program')\n", files=files).up().outputs
    assert outputs == {"by": "folder" if entry == "sub/" else "file"}


def test_install_makes_the_virtual_environment(make_stack: MakeStack) -> None:
    options = "name: engine-test\nruntime: {name: python, options: {virtualenv: venv}}\n"
    stack = make_stack("", files={"Pulumi.yaml": options, "requirements.txt": "# nothing\n"})
    stack.run("install")
    assert (stack.project / "venv" / "bin" / "python").exists()


def test_an_interrupt_lets_the_running_create_finish(make_stack: MakeStack, tmp_path: Path) -> None:
    path, gate = tmp_path / "file", tmp_path / "gate"
    stack = make_stack(declare(path, gate=gate))
    running = stack.start("up")
    running.wait_until(path.exists, what="create has begun")
    running.interrupt()
    running.wait_until_says("^C received")
    gate.touch()
    done = running.wait(ok=False)
    assert [item["id"] for item in stack.resources()] == [str(path)]
    assert "Traceback" not in done.text
    stack.destroy()
    assert not path.exists()


BUSY_PROGRAM = "import pulumi, threading\nprint('busy now', flush=True)\nthreading.Event().wait(600)\n"


def test_an_interrupt_ends_a_busy_program(make_stack: MakeStack) -> None:
    running = make_stack(BUSY_PROGRAM).start("up")
    running.wait_until_says("busy now")
    running.interrupt()
    done = running.wait(ok=False, timeout=30)
    assert "Traceback" not in done.text


def test_the_host_ends_with_a_killed_engine(make_stack: MakeStack) -> None:
    running = make_stack(BUSY_PROGRAM).start("up")
    running.wait_until_says("busy now")
    (host,) = running.kill()
    host.wait(timeout=30)


def test_a_killed_engine_leaves_a_pending_operation_and_a_lock(make_stack: MakeStack, tmp_path: Path) -> None:
    path, gate = tmp_path / "file", tmp_path / "gate"
    stack = make_stack(declare(path, gate=gate))
    running = stack.start("up")
    running.wait_until(path.exists, what="create has begun")
    running.wait_until_pending("creating")
    left = running.kill()
    assert left
    assert [operation["type"] for operation in stack.pending_operations()] == ["creating"]
    assert "locked" in stack.destroy(ok=False).text
    stack.cancel()
    gate.touch()
    stack.destroy()


@pytest.mark.parametrize("where", [".venv", "../venv with space"])
def test_a_program_in_its_own_virtual_environment(make_stack: MakeStack, tmp_path: Path, where: str) -> None:
    program = declare(tmp_path / "file").replace("create(self, props):", "create(self, props):\n        import sys")
    program = program.replace("len(props['text'])", "1").replace('len(props["text"])', "sys.prefix", 1)
    options = f"name: engine-test\nruntime:\n  name: python\n  options:\n    virtualenv: {where!r} # ours\n"
    stack = make_stack(program + "import sys\npulumi.export('prefix', sys.prefix)\n", files={"Pulumi.yaml": options})
    environment = stack.project / where
    venv.create(environment, with_pip=False, symlinks=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    outputs = stack.up().outputs
    assert Path(outputs["prefix"]).resolve() == environment.resolve()  # the program
    assert Path(outputs["size"]).resolve() == environment.resolve()  # the provider


def test_a_virtual_environment_that_is_not_there(make_stack: MakeStack) -> None:
    options = "name: engine-test\nruntime: {name: python, options: {virtualenv: nowhere}}\n"
    done = make_stack("import pulumi\n", files={"Pulumi.yaml": options}).preview(ok=False)
    assert "nowhere" in done.text


def test_the_cli_knows_the_program(make_stack: MakeStack) -> None:
    done = make_stack("").run("about")
    assert "python" in done.text
    assert "pulumi-lium" in done.text
