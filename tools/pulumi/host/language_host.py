"""Python language host for a Pulumi CLI that came without one (built from its Go module).

The engine starts it as `pulumi-language-python ENGINE_ADDRESS` in the program's folder, reads a port from the first
line of its stdout, and drives the program over the `LanguageRuntime` service. The SDK's inline-program server does the
work; this file finds the program, chooses its interpreter, words its failures, and ends when it is told to.

The interpreter: the `virtualenv` runtime option, else the active virtual environment, else `python3` on PATH.
"""

from __future__ import annotations

import os
import queue
import re
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

PARENT_POLL_S = 1.0
PROJECT_FILES = ("Pulumi.yaml", "Pulumi.yml", "Pulumi.json")
VIRTUALENV_OPTION = re.compile(
    r"""^[^#\n]*?\bvirtualenv["']?\s*:\s*(?:"([^"\n]+)"|'([^'\n]+)'|([^\s,}#"']+))""", re.MULTILINE
)


def project_root(start: Path) -> Path | None:
    """The folder at or above `start` that holds the Pulumi project file."""
    for folder in (start, *start.parents):
        if any((folder / name).is_file() for name in PROJECT_FILES):
            return folder
    return None


def chosen_interpreter(cwd: Path) -> Path | None:
    """Interpreter that the project's `virtualenv` option names; None if there is no option or no such environment yet.

    It is read from the text: nothing can be imported before the interpreter is known.
    """
    root = project_root(cwd)
    if root is None:
        return None
    text = next((root / name).read_text() for name in PROJECT_FILES if (root / name).is_file())
    found = VIRTUALENV_OPTION.search(text)
    if found is None:
        return None
    python = root / next(filter(None, found.groups())) / "bin" / "python"
    return python if python.exists() else None


def run_under(python: Path) -> None:
    """Continue under `python`, unless this is it. Does not return if it changes."""
    if python.parent.parent.resolve() != Path(sys.prefix).resolve():
        os.execv(python, [str(python), "-u", __file__, *sys.argv[1:]])


if __name__ == "__main__":
    _python = chosen_interpreter(Path.cwd())
    if _python is not None:
        run_under(_python)

try:
    import grpc
    from google.protobuf import empty_pb2
    from pulumi import RunError, log
    from pulumi.automation._server import LanguageServer
    from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2
except ImportError as _error:
    sys.exit(
        f"pulumi-language-python: {sys.executable} cannot import the Pulumi SDK ({_error}).\n"
        "Install the program's packages there, activate the environment that has them, or name that in Pulumi.yaml "
        "(runtime: {name: python, options: {virtualenv: PATH}})."
    )


class Host(LanguageServer):
    """The service. A program runs on the main thread, where Python expects it to be.

    The engine starts a host for each run, so that nothing of the preview is left in the update.
    """

    def __init__(self) -> None:
        super().__init__(self._run_program)
        self._requests: queue.Queue[tuple[Any, Any, Future[Any]]] = queue.Queue()
        self._running: list[Future[Any]] = []
        self._program = Path()

    def serve_programs(self) -> None:
        """Runs what `Run` hands over; never returns, the engine ends the process."""
        while True:
            request, context, answer = self._requests.get()
            # The engine does not wait for a program that it has cancelled: the answer may be there already.
            result = self._run(request, context)
            if not answer.done():
                answer.set_result(result)

    def Handshake(self, request: Any, context: Any) -> Any:
        return language_pb2.LanguageHandshakeResponse()

    def Run(self, request: Any, context: Any) -> Any:
        answer: Future[Any] = Future()
        self._running.append(answer)
        self._requests.put((request, context, answer))
        try:
            return answer.result()
        finally:
            self._running.remove(answer)

    def Cancel(self, request: Any, context: Any) -> Any:
        for answer in self._running:
            if not answer.done():
                answer.set_result(language_pb2.RunResponse(bail=True))
        return empty_pb2.Empty()

    def _run(self, request: Any, context: Any) -> Any:
        folder = Path(request.info.program_directory or request.pwd)
        entry = Path(request.info.entry_point or request.program or ".")
        self._program = folder / entry
        wanted = dict(request.info.options).get("virtualenv")
        try:
            if wanted and not same_environment(Path(request.info.root_directory) / str(wanted)):
                raise RunError(
                    f"the runtime option virtualenv names {wanted!r}, which is no environment with a Python: "
                    "make it with `pulumi install`, or correct the path in Pulumi.yaml"
                )
            os.chdir(request.pwd or folder)
            result = super().Run(request, context)
        except RunError as error:
            log.error(str(error))
            result = language_pb2.RunResponse(error=str(error))
        if result.error:  # said through the log above; the engine would say it a second time
            return language_pb2.RunResponse(bail=True)
        return result

    def _run_program(self) -> None:
        script = self._program / "__main__.py" if self._program.is_dir() else self._program
        if not script.is_file():
            raise RunError(
                f"no Python program at {script}: a program is a folder with __main__.py, or a file named by `main`"
            )
        sys.path.insert(0, str(script.parent))
        sys.argv = [str(script)]
        try:
            runpy.run_path(str(script), run_name="__main__")
        except RunError:
            raise
        except SystemExit as end:
            if end.code not in (None, 0):
                raise RunError(f"the program ended with sys.exit({end.code!r})") from end
        except BaseException as error:
            raise RunError(
                "Program failed with an unhandled exception:\n" + program_traceback(error, script)
            ) from error

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version="0.0.0")

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:
        """Packages of the interpreter; without `transitiveDependencies`, those that no other one requires."""
        from importlib.metadata import distributions

        found = {str(item.name): item for item in distributions() if item.name}
        if not request.transitiveDependencies:
            required = {
                re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower().replace("_", "-")
                for item in found.values()
                for line in item.requires or []
                if "extra ==" not in line
            }
            found = {name: item for name, item in found.items() if name.lower().replace("_", "-") not in required}
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[
                language_pb2.DependencyInfo(name=name, version=item.version) for name, item in sorted(found.items())
            ]
        )

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:
        """`pulumi install`: makes the environment that `virtualenv` names and installs `requirements.txt` into it."""
        folder = Path(request.info.program_directory or request.directory)
        wanted = dict(request.info.options).get("virtualenv")
        python, steps = Path(sys.executable), []
        if wanted:
            environment = Path(request.info.root_directory or folder) / str(wanted)
            python = environment / "bin" / "python"
            if not python.exists():
                steps.append([sys.executable, "-m", "venv", str(environment)])
        if (folder / "requirements.txt").is_file():
            steps.append([str(python), "-m", "pip", "install", "-r", str(folder / "requirements.txt")])
        else:
            yield language_pb2.InstallDependenciesResponse(stdout=b"no requirements.txt, nothing to install\n")
        for step in steps:
            with subprocess.Popen(step, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    yield language_pb2.InstallDependenciesResponse(stdout=line)
            if process.returncode != 0:
                context.abort(grpc.StatusCode.UNKNOWN, f"`{' '.join(step)}` failed with exit code {process.returncode}")


def same_environment(environment: Path) -> bool:
    """Whether this interpreter is the one of `environment`."""
    return environment.resolve() == Path(sys.prefix).resolve()


def program_traceback(error: BaseException, script: Path) -> str:
    """Traceback from the program's first frame on; all of it where that frame is not found (a syntax error)."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != str(script):
        frame = frame.tb_next
    lines = traceback.format_exception(type(error), error, frame or error.__traceback__)
    return "".join(lines if frame is not None else traceback.format_exception_only(error))


def end_with_parent(parent: int) -> None:
    """Ends the process when the engine is gone: a killed engine tells nobody."""
    while os.getppid() == parent:
        threading.Event().wait(PARENT_POLL_S)
    os._exit(0)


def main() -> None:
    # SIGINT is how the engine says that it is done with us. Whatever the program was at, there is nobody to tell.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    parent = os.getppid()
    host = Host()
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(max_workers=8), options=unlimited)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    threading.Thread(target=end_with_parent, args=(parent,), daemon=True).start()
    host.serve_programs()


if __name__ == "__main__":
    main()
