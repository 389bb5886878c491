"""When a host leaves tests out, as a pure decision."""

from __future__ import annotations

from ansible_collections.lium.cluster.plugins.module_utils._roce.quarantine import CLIENT, SERVER, Quarantine

HOSTS = [f"gpu{number:02}" for number in range(16)]


def after(tests: list[tuple[str, str, bool]], limit: int = 4) -> Quarantine:
    """The state of gpu00 after tests in a role, with a peer, good or not."""
    own = Quarantine("gpu00", HOSTS, limit)
    for role, peer, good in tests:
        own.count(role, peer, good)
    own.judge()
    return own


def failed(role: str, count: int, first: int = 1) -> list[tuple[str, str, bool]]:
    return [(role, HOSTS[number], False) for number in range(first, first + count)]


def test_a_host_that_fails_in_both_roles_is_out() -> None:
    own = after(failed(SERVER, 2) + failed(CLIENT, 2, 3))
    assert own.over()
    assert own.whose([("gpu00", "gpu09", 0)]) == own.whose([("gpu09", "gpu00", 0)]) == "gpu00"
    assert own.whose([("gpu08", "gpu09", 0)]) is None


def test_a_role_that_was_not_tried_yet_stays_in() -> None:
    own = after(failed(SERVER, 9))
    assert not own.over()
    assert own.whose([("gpu00", "gpu12", 0)]) == "gpu00"
    assert own.whose([("gpu12", "gpu00", 0)]) is None
    own.count(CLIENT, "gpu12", False)
    own.judge()
    assert own.over()


def test_one_less_is_not_enough_and_one_peer_counts_once() -> None:
    assert not after(failed(SERVER, 2) + failed(CLIENT, 1, 3)).over()
    assert not after(failed(SERVER, 1) * 10).over()


def test_a_role_with_a_good_test_stays_in() -> None:
    own = after([(CLIENT, "gpu15", True), *failed(SERVER, 4)])
    assert not own.over()
    assert own.whose([("gpu00", "gpu09", 0)]) == "gpu00"
    assert own.whose([("gpu09", "gpu00", 0)]) is None
    assert after([(SERVER, "gpu15", True), *failed(SERVER, 9)]).whose([("gpu00", "gpu14", 0)]) is None


def test_a_meeting_with_both_directions_takes_place_while_one_works() -> None:
    own = after([(CLIENT, "gpu15", True), *failed(SERVER, 4)])
    assert own.whose([("gpu00", "gpu09", 0), ("gpu09", "gpu00", 0)]) is None


def test_with_many_in_trouble_nobody_is_out() -> None:
    own = Quarantine("gpu00", HOSTS, 4)
    for host in HOSTS[1:4]:
        own.learn(after_other(host).news())
    for role, peer, good in failed(SERVER, 8):
        own.count(role, peer, good)
    own.judge()
    assert not own.over()


def after_other(host: str) -> Quarantine:
    other = Quarantine(host, HOSTS, 4)
    for peer in HOSTS[10:13]:
        other.count(SERVER, peer, False)
    return other


def test_others_hear_who_is_out_and_in_which_role() -> None:
    own = Quarantine("gpu09", HOSTS, 4)
    own.learn(after([(CLIENT, "gpu15", True), *failed(SERVER, 4)]).news())
    assert own.whose([("gpu00", "gpu09", 0)]) == "gpu00"
    assert own.whose([("gpu09", "gpu00", 0)]) is None
    assert not own.over()
    third = Quarantine("gpu10", HOSTS, 4)
    third.learn(own.news())
    assert third.whose([("gpu00", "gpu10", 0)]) == "gpu00"


def test_nobody_is_ever_out_in_a_rerun() -> None:
    own = after(failed(SERVER, 15) + failed(CLIENT, 15), limit=0)
    assert not own.over()
    assert own.whose([("gpu00", "gpu09", 0)]) is None
