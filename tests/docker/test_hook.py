"""The module's work on a real daemon: merge, reload, the way back, and that Docker runs at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._probe import Completed, HostProbe, SubprocessRunner
from ansible_collections.lium.cluster.plugins.module_utils._runtime import daemon_json
from ansible_collections.lium.cluster.plugins.module_utils._runtime.hook import Hook, HookError, Places

from tests.docker.conftest import Site
from tests.docker.daemon import DOCKER

pytestmark = pytest.mark.docker
IMAGE = "lium-test"


class SiteRunner(SubprocessRunner):
    """The site's own client in place of the machine's; there is no systemd to ask."""

    def run(self, argv, timeout: float, stdin: str | None) -> Completed:
        return super().run([DOCKER, *argv[1:]] if argv[0] == "docker" else argv, timeout, stdin)


@pytest.fixture
def make_hook(bare_site: Site, monkeypatch: pytest.MonkeyPatch):
    """Hooks on the site's daemon, with the wrapper where the site has it."""
    monkeypatch.setattr(daemon_json, "WRAPPER", str(bare_site.wrapper))
    places = Places(
        daemon_json=str(bare_site.daemon.config),
        pid_file=str(bare_site.daemon.pid_file),
        settings=str(bare_site.settings),
        undo=str(bare_site.folder / "undo"),
    )

    def make(**options) -> Hook:
        probe = HostProbe(SiteRunner({**os.environ, "DOCKER_HOST": bare_site.daemon.host}))
        return Hook(probe, places, start=bare_site.daemon.start, **options)

    return make


def test_pod_install_twice_and_remove(bare_site: Site, make_hook) -> None:
    daemon = bare_site.daemon
    daemon_id = daemon.pid_file.read_text()
    before = bare_site.write_daemon_json(**{"log-driver": "json-file", "debug": False})

    dry = make_hook(dry=True).install("pod")
    assert dry.changes
    assert daemon.config.read_text() == before

    assert make_hook().install("pod").changes
    assert daemon.info["DefaultRuntime"] == "lium-rdma"
    assert daemon.run("--network", "none", IMAGE, "sh", "-c", "test -e /proc && echo ran") == "ran\n"
    assert make_hook().install("pod").changes == []

    running = daemon.docker("run", "-d", "--name", "job", "--network", "none", IMAGE, "sleep", "600").stdout.strip()
    with pytest.raises(HookError, match=r"containers run on lium-rdma \(job\)"):
        make_hook().remove()
    assert daemon.info["DefaultRuntime"] == "lium-rdma"
    daemon.docker("rm", "-f", running)

    assert make_hook().remove().changes
    assert daemon.config.read_text() == before
    assert daemon.info["DefaultRuntime"] == "runc"
    assert make_hook().remove().changes == []
    assert sorted(path.name for path in bare_site.folder.glob("*lium*")) == ["lium-rdma-runc"]
    assert daemon.pid_file.read_text() == daemon_id, "Docker was reloaded, never restarted"


def test_a_default_of_nvidia_stands_behind_and_comes_back(bare_site: Site, make_hook) -> None:
    daemon = bare_site.daemon
    traced = bare_site.folder / "traced"
    site_runtime = bare_site.folder / "nvidia-container-runtime"
    site_runtime.write_text(f'#!/bin/sh\necho called >> {traced}\nexec runc "$@"\n')
    site_runtime.chmod(0o755)
    text = bare_site.write_daemon_json(
        **{
            "default-runtime": "nvidia",
            "runtimes": {"nvidia": {"path": str(site_runtime), "runtimeArgs": []}},
            "log-driver": "json-file",
        }
    )
    daemon.stop()
    daemon.start()
    make_hook().install("pod")
    traced.unlink(missing_ok=True)
    daemon.run("--network", "none", IMAGE, "ls")
    assert "called" in traced.read_text()
    assert make_hook().install("pod").changes == []
    make_hook().remove()
    assert daemon.info["DefaultRuntime"] == "nvidia"
    assert daemon.config.read_text() == text


def test_host_scope_leaves_the_default_alone(bare_site: Site, make_hook) -> None:
    make_hook().install("host")
    info = bare_site.daemon.info
    assert info["DefaultRuntime"] == "runc"
    assert "lium-rdma" in info["Runtimes"]
    assert bare_site.daemon.run("--runtime", "lium-rdma", "--network", "none", IMAGE, "ls", "/") != ""


def test_a_rental_keeps_everything_as_it_is(bare_site: Site, make_hook) -> None:
    daemon = bare_site.daemon
    before = daemon.config.read_text()
    daemon.docker("run", "-d", "--name", "pod_7", "--network", "none", IMAGE, "sleep", "600")
    try:
        with pytest.raises(HookError, match="a rental runs"):
            make_hook().install("host")
    finally:
        daemon.docker("rm", "-f", "pod_7")
    assert daemon.config.read_text() == before
    assert not bare_site.settings.read_text().startswith("# Written by")


def test_what_docker_does_not_take_is_put_back(bare_site: Site, make_hook) -> None:
    """A key that Docker does not know makes its reload fail while it runs on."""
    daemon = bare_site.daemon
    before = '{"x-site-note": "keep me"}\n'
    daemon.config.write_text(before)
    clock = iter(range(0, 10_000, 20))
    with pytest.raises(HookError, match=r"The old file is back; Docker answers") as caught:
        make_hook(now=lambda: float(next(clock))).install("host")
    assert "not taken" in str(caught.value) or "dockerd refuses" in str(caught.value)
    assert daemon.config.read_text() == before
    assert daemon.alive
    assert daemon.info["ServerVersion"]


def test_a_daemon_that_dies_is_started_again_with_the_old_file(bare_site: Site, make_hook) -> None:
    daemon = bare_site.daemon
    before = daemon.config.read_text()

    def end_instead(pid: int, signal_number: int) -> None:
        assert pid == int(daemon.pid_file.read_text())
        daemon.stop()

    with pytest.raises(HookError, match=r"Docker ended when it read the new file.*Docker answers"):
        make_hook(kill=end_instead, sleep=lambda _: time.sleep(0.01)).install("host")
    assert daemon.config.read_text() == before
    assert daemon.info["ServerVersion"]


class Killed(BaseException):
    """The module's process ends here."""


def before_the_reload(pid: int, signal_number: int) -> None:
    raise Killed


def after_the_reload(pid: int, signal_number: int) -> None:
    os.kill(pid, signal_number)
    raise Killed


@pytest.mark.parametrize("death", [before_the_reload, after_the_reload])
@pytest.mark.parametrize("scope", ["pod", "host"])
def test_a_call_that_is_killed_is_made_good_by_the_next(
    bare_site: Site, make_hook, scope: str, death: Callable[[int, int], None]
) -> None:
    daemon = bare_site.daemon
    daemon.config.unlink()
    default = "lium-rdma" if scope == "pod" else "runc"
    with pytest.raises(Killed):
        make_hook(kill=death).install(scope)
    make_hook().install(scope)
    assert daemon.info["DefaultRuntime"] == default
    assert "lium-rdma" in daemon.info["Runtimes"]
    assert daemon.run("--runtime", default, "--network", "none", IMAGE, "ls", "/") != ""
    assert make_hook().install(scope).changes == []

    with pytest.raises(Killed):
        make_hook(kill=death).remove()
    assert make_hook().remove().changes
    info = daemon.info
    assert (info["DefaultRuntime"], "lium-rdma" in info["Runtimes"]) == ("runc", False)
    assert not daemon.config.exists(), "there was none"
    assert not bare_site.settings.exists()
    assert make_hook().remove().changes == []
    assert daemon.run("--network", "none", IMAGE, "ls", "/") != ""


def test_an_install_that_was_killed_and_that_docker_does_not_take_is_no_way_back(bare_site: Site, make_hook) -> None:
    daemon = bare_site.daemon
    before = daemon.config.read_text()
    with pytest.raises(Killed):
        make_hook(kill=before_the_reload).install("pod")

    def end_instead(pid: int, signal_number: int) -> None:
        daemon.stop()

    with pytest.raises(HookError, match=r"The old file is back; Docker answers"):
        make_hook(kill=end_instead).install("pod")
    assert daemon.config.read_text() == before
    assert daemon.info["DefaultRuntime"] == "runc"


@pytest.mark.parametrize("text", ["<!DOCTYPE html><html>404</html>", "[]", '{"hosts": ["unix:///x"]}'])
def test_a_file_that_cannot_be_merged_is_left(bare_site: Site, make_hook, text: str) -> None:
    bare_site.daemon.config.write_text(text)
    with pytest.raises(HookError, match=r"line 1, column 1|both set hosts"):
        make_hook().install("pod")
    assert bare_site.daemon.config.read_text() == text
    assert bare_site.daemon.info["DefaultRuntime"] == "runc"
