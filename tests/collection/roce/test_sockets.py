"""Whether a port is taken: asked of the kernel, and read from its tables where it cannot be asked."""

from __future__ import annotations

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


def test_the_kernel_is_asked_for_one_port_and_no_table_is_read(tmp_path: Path) -> None:
    with listener(socket.AF_INET, "127.0.0.9") as port:
        assert listens(port, "127.0.0.9", proc=str(tmp_path))


def test_without_netlink_the_tables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_SOCK_DIAG_BY_FAMILY", 4711)  # the kernel answers with an error
    with pytest.raises(OSError, match=r"Invalid argument|not supported"):
        list(sockets._listeners(socket.AF_INET, 9))
    with listener(socket.AF_INET, "127.0.0.9") as port:
        assert listens(port, "127.0.0.9")
    assert not listens(port, "127.0.0.9")
