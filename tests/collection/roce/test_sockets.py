"""Whether a port is taken: asked of the kernel, and read from its tables where it cannot be asked."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce import sockets
from ansible_collections.lium.cluster.plugins.module_utils._roce.sockets import listens, listens_by_tables

Look = Callable[[int, str], bool]
BOTH = pytest.mark.parametrize("look", [listens, listens_by_tables])


@contextmanager
def listener(family: int, address: str) -> Iterator[int]:
    with closing(socket.socket(family, socket.SOCK_STREAM)) as door:
        door.bind((address, 0))
        door.listen()
        yield door.getsockname()[1]


@BOTH
@pytest.mark.parametrize(
    ("family", "address", "taken"),
    [
        (socket.AF_INET, "127.0.0.9", True),
        (socket.AF_INET, "0.0.0.0", True),
        (socket.AF_INET, "127.0.0.8", False),
        (socket.AF_INET6, "::", True),
        (socket.AF_INET6, "::ffff:127.0.0.9", True),
        (socket.AF_INET6, "::1", False),
    ],
)
def test_a_listener_counts_on_its_own_address_and_on_all(look: Look, family: int, address: str, taken: bool) -> None:
    with listener(family, address) as port:
        assert look(port, "127.0.0.9") is taken
    assert look(port, "127.0.0.9") is False


@BOTH
def test_a_port_that_is_only_bound_or_connected_is_not_listened_on(look: Look) -> None:
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.9", 0))
        assert not look(bound.getsockname()[1], "127.0.0.9")
    with listener(socket.AF_INET, "127.0.0.8") as port, closing(socket.socket()) as client:
        client.bind(("127.0.0.9", 0))
        client.connect(("127.0.0.8", port))
        assert not look(client.getsockname()[1], "127.0.0.9")


def test_the_kernel_is_asked_for_one_port_and_no_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "asking_loads_a_module", lambda: False)
    with listener(socket.AF_INET, "127.0.0.9") as port:
        assert listens(port, "127.0.0.9", proc=str(tmp_path))


@pytest.mark.parametrize(
    ("modules", "files", "loads"),
    [
        ("wireguard 1 0 - Live 0x0\n", "kernel/net/ipv4/tcp_diag.ko: kernel/net/ipv4/inet_diag.ko\n", True),
        ("tcp_diag 16384 0 - Live 0x0\n", "kernel/net/ipv4/tcp_diag.ko.xz:\n", False),
        ("wireguard 1 0 - Live 0x0\n", "kernel/net/ipv4/tcp_bbr.ko:\n", False),
        (None, None, False),
    ],
    ids=["not loaded", "loaded", "built in", "no modules"],
)
def test_a_look_loads_no_kernel_module(tmp_path: Path, modules: str | None, files: str | None, loads: bool) -> None:
    for path, text in (("proc/modules", modules), (f"lib/modules/{os.uname().release}/modules.dep", files)):
        if text is not None:
            (tmp_path / path).parent.mkdir(parents=True)
            (tmp_path / path).write_text(text)
    assert sockets.asking_loads_a_module(str(tmp_path)) is loads


def test_where_asking_would_load_a_module_the_tables_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sockets, "asking_loads_a_module", lambda: True)
    with listener(socket.AF_INET, "127.0.0.9") as port:
        assert listens(port, "127.0.0.9")
        assert not listens(port, "127.0.0.9", proc=str(tmp_path))


def test_without_netlink_the_tables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_SOCK_DIAG_BY_FAMILY", 4711)  # the kernel answers with an error
    with pytest.raises(OSError, match=r"Invalid argument|not supported"):
        list(sockets._listeners(socket.AF_INET, 9))
    with listener(socket.AF_INET, "127.0.0.9") as port:
        assert listens(port, "127.0.0.9")
    assert not listens(port, "127.0.0.9")
