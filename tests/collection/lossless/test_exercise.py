"""The counter proof: 5,000 generated histories, each judged as it was made."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._lossless.exercise import (
    BLACKHOLE,
    CABLE,
    HOST_BUFFERS,
    SWITCH,
    WRONG_CLASS,
    History,
    Load,
    Proof,
    Snapshot,
    delta,
    prove,
)

LINE = 400.0


@dataclasses.dataclass(frozen=True)
class Vendor:
    """Names of one vendor's counters, as its driver has them for priority 3."""

    ethtool: Mapping[str, str]
    hardware: Mapping[str, str]


MLX5 = Vendor(
    {
        "roce": "rx_prio3_bytes",
        "bulk": "rx_prio0_bytes",
        "pause_in": "rx_prio3_pause",
        "pause_out": "tx_prio3_pause",
        "discard": "rx_prio3_discards",
        "storm": "tx_pause_storm_warning_events",
        "crc": "rx_crc_errors_phy",
    },
    {
        "sequence": "out_of_sequence",
        "nak": "packet_seq_err",
        "timeout": "local_ack_timeout_err",
        "rnr": "rnr_nak_retry_err",
        "marked": "np_ecn_marked_roce_packets",
        "handled": "rp_cnp_handled",
    },
)
BNXT = Vendor(
    {
        "roce": "rx_bytes_pri3",
        "bulk": "rx_bytes_pri0",
        "pause_in": "rx_pfc_ena_frames_pri3",
        "pause_out": "tx_pfc_ena_frames_pri3",
        "discard": "rx_stat_discard",
        "storm": "continuous_roce_pause_events",
        "crc": "rx_fcs_err_frames",
    },
    {
        "sequence": "oos_drop_count",
        "nak": "seq_err_naks_rcvd",
        "timeout": "to_retransmits",
        "rnr": "rnr_naks_rcvd",
        "marked": "rx_ecn_marked_pkts",
        "handled": "rx_cnp_pkts",
    },
)
ICE = Vendor(
    {
        "pause_in": "rx_priority_3_xoff.nic",
        "pause_out": "tx_priority_3_xoff.nic",
        "discard": "rx_dropped.nic",
        "crc": "rx_crc_errors.nic",
    },
    {
        "sequence": "RetransSegs",
        "nak": "Nak Sequence Error",
        "timeout": "RTO",
        "rnr": "RNR received",
        "marked": "RxECNMrkd",
        "handled": "cnpHandled",
    },
)
RXE = Vendor(
    {},
    {"sequence": "out_of_seq_request", "nak": "rcvd_seq_err", "timeout": "retry_exceeded_err", "rnr": "rcvd_rnr_err"},
)
CARDS = (MLX5, BNXT, ICE)

#: How far counters move, by key of `Vendor`.
Moves = dict[str, int]


@dataclasses.dataclass
class Script:
    """A load as it is played: what moves on the receiver and on each sender, and what must be said of it."""

    vendor: Vendor
    receiver: Moves
    senders: list[Moves]
    rate: float
    proven: str
    place: str | None = None
    ecn_only: bool = False
    reset: bool = False


def busy(rng: random.Random) -> tuple[Moves, list[Moves]]:
    """Traffic without any trouble."""
    moved = rng.randrange(10**11, 10**12)
    return {"roce": moved, "bulk": rng.randrange(10**6)}, [
        {"bulk": rng.randrange(10**6)} for _ in range(rng.randint(1, 7))
    ]


def harmless(rng: random.Random, receiver: Moves, senders: list[Moves]) -> None:
    """What may move and must not change the verdict."""
    for moves in (receiver, *senders):
        if rng.random() < 0.2:
            moves["rnr"] = rng.randint(1, 500)
        if rng.random() < 0.1:
            moves["storm"] = rng.randint(1, 5)


def held_back(rng: random.Random, receiver: Moves, senders: list[Moves]) -> None:
    """The mechanism at work: pause, or ECN, or both."""
    ways = rng.choice((("pause",), ("ecn",), ("pause", "ecn")))
    if "pause" in ways:
        receiver["pause_out"] = rng.randint(1, 50_000)
        for moves in senders:
            moves["pause_in"] = rng.randint(1, 50_000)
    if "ecn" in ways:
        receiver["marked"] = rng.randint(1, 10**6)
        for moves in senders:
            moves["handled"] = rng.randint(1, 10**5)


def full(rng: random.Random) -> float:
    return LINE * rng.uniform(0.92, 1.0)


def lossless(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    held_back(rng, receiver, senders)
    return Script(rng.choice(CARDS), receiver, senders, full(rng), "exercised_ok")


def no_congestion(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    return Script(rng.choice(CARDS), receiver, senders, LINE * rng.uniform(0.3, 1.0), "not_exercised")


def never_full(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    held_back(rng, receiver, senders)
    return Script(rng.choice(CARDS), receiver, senders, LINE * rng.uniform(0.1, 0.85), "not_exercised")


def lose(rng: random.Random, receiver: Moves, senders: list[Moves]) -> None:
    receiver["sequence"] = rng.randint(1, 10**6)
    if rng.random() < 0.7:
        rng.choice(senders)["nak"] = rng.randint(1, 10**6)


def host_buffers(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    receiver["discard"] = rng.randint(1, 10**5)
    if rng.random() < 0.8:
        lose(rng, receiver, senders)
    return Script(rng.choice(CARDS), receiver, senders, full(rng), "exercised_loss", HOST_BUFFERS)


def switch_drops(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    if rng.random() < 0.5:
        held_back(rng, receiver, senders)
    lose(rng, receiver, senders)
    return Script(rng.choice(CARDS), receiver, senders, LINE * rng.uniform(0.2, 1.0), "exercised_loss", SWITCH)


def switch_deaf(rng: random.Random) -> Script:
    """It swallows the receiver's pause frames, with or without a packet lost so far."""
    receiver, senders = busy(rng)
    receiver["pause_out"] = rng.randint(20_000, 10**6)
    if rng.random() < 0.5:
        lose(rng, receiver, senders)
    return Script(rng.choice(CARDS), receiver, senders, full(rng), "exercised_loss", SWITCH)


def wrong_class(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    receiver["roce"], receiver["bulk"] = rng.randrange(10**6), receiver["roce"]
    lost = rng.random() < 0.6
    if lost:
        lose(rng, receiver, senders)
    proven = "exercised_loss" if lost else "not_exercised"
    return Script(rng.choice((MLX5, BNXT)), receiver, senders, full(rng), proven, WRONG_CLASS)


def blackhole(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    for moves in senders:
        moves["timeout"] = rng.randint(1, 1000)
    return Script(
        rng.choice((*CARDS, RXE)), receiver, senders, LINE * rng.uniform(0, 0.09), "exercised_loss", BLACKHOLE
    )


def bad_cable(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    lose(rng, receiver, senders)
    rng.choice((receiver, *senders))["crc"] = rng.randint(1, 1000)
    return Script(rng.choice(CARDS), receiver, senders, full(rng), "exercised_loss", CABLE)


def tolerable(rng: random.Random) -> Script:
    """A fabric without PFC may lose one packet of a million."""
    receiver, senders = busy(rng)
    held_back(rng, receiver, senders)
    packets = receiver["roce"] / 4096
    receiver["sequence"] = max(1, int(packets * 1e-6 * rng.uniform(0.01, 0.9)))
    return Script(rng.choice((MLX5, BNXT)), receiver, senders, full(rng), "exercised_ok", ecn_only=True)


def intolerable(rng: random.Random) -> Script:
    receiver, senders = busy(rng)
    receiver["sequence"] = int(receiver["roce"] / 4096 * 1e-6 * rng.uniform(2, 1000)) + 1
    return Script(rng.choice((MLX5, BNXT)), receiver, senders, full(rng), "exercised_loss", SWITCH, ecn_only=True)


def soft(rng: random.Random) -> Script:
    """Soft-RoCE counts no pause, no ECN and no discards; losses it does count."""
    receiver, senders = busy(rng)
    if rng.random() < 0.5:
        lose(rng, receiver, senders)
        return Script(RXE, receiver, senders, LINE * rng.uniform(0.2, 1), "exercised_loss")
    return Script(RXE, receiver, senders, full(rng), "unknown")


def driver_started_anew(rng: random.Random) -> Script:
    """Counters of one sender were set to zero in between, so that nobody knows what it has lost."""
    receiver, senders = busy(rng)
    held_back(rng, receiver, senders)
    return Script(rng.choice(CARDS), receiver, senders, full(rng), "unknown", reset=True)


STORIES: tuple[Callable[[random.Random], Script], ...] = (
    lossless,
    no_congestion,
    never_full,
    host_buffers,
    switch_drops,
    switch_deaf,
    wrong_class,
    blackhole,
    bad_cable,
    tolerable,
    intolerable,
    soft,
    driver_started_anew,
)


def history(rng: random.Random, name: str, vendor: Vendor, moves: Moves, *, reset: bool = False) -> History:
    """Counters before and after; those of queue pairs often stand just before they come round."""
    before: dict[str, dict[str, int]] = {"ethtool": {}, "hardware": {}}
    after: dict[str, dict[str, int]] = {"ethtool": {}, "hardware": {}}
    for group, names in (("ethtool", vendor.ethtool), ("hardware", vendor.hardware)):
        for key, counter in names.items():
            moved = moves.get(key, 0)
            if group == "ethtool":
                start = rng.randrange(2**40)
                end = start + moved
            else:
                start = rng.choice((rng.randrange(2**32), 2**32 - 1 - rng.randrange(100)))
                end = (start + moved) % 2**32
            if reset and key in ("sequence", "nak", "timeout"):
                start, end = rng.randrange(1, 10**6), 0
            before[group][counter], after[group][counter] = start, end
    return History(name, Snapshot(before["ethtool"], before["hardware"]), Snapshot(after["ethtool"], after["hardware"]))


def played(script: Script, rng: random.Random) -> Proof:
    senders = [
        history(rng, f"sender{number}", script.vendor, moves, reset=script.reset and number == 0)
        for number, moves in enumerate(script.senders)
    ]
    receiver = history(rng, "receiver", script.vendor, script.receiver)
    return prove(Load(receiver, senders, script.rate, LINE, ecn_only=script.ecn_only))


def test_five_thousand_histories_are_judged_as_they_were_made() -> None:
    wrong, told = [], {}
    for seed in range(5000):
        rng = random.Random(seed)
        story = STORIES[seed % len(STORIES)]
        script = story(rng)
        harmless(rng, script.receiver, script.senders)
        proof = played(script, rng)
        told[proof.word] = told.get(proof.word, 0) + 1
        if (proof.word, proof.place) != (script.proven, script.place):
            wrong.append((seed, story.__name__, proof))
    assert wrong == []
    assert min(told[name] for name in ("exercised_ok", "exercised_loss", "not_exercised", "unknown")) > 400


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_is_said_besides(story: Callable[[random.Random], Script]) -> None:
    """Warnings name their rail, and what is not known is listed."""
    for seed in range(40):
        rng = random.Random(seed)
        script = story(rng)
        harmless(rng, script.receiver, script.senders)
        proof = played(script, rng)
        for key, word in (("rnr", "not ready"), ("storm", "storms"), ("crc", "cable")):
            shown = key in script.vendor.ethtool or key in script.vendor.hardware
            assert any(word in text for text in proof.warnings) == (
                shown and any(moves.get(key) for moves in (script.receiver, *script.senders))
            )
        assert bool(proof.unread) == script.reset


def test_a_card_without_counters_proves_nothing() -> None:
    empty = Snapshot({}, {})
    silent = [History(name, empty, empty) for name in ("a", "b", "c")]
    proof = prove(Load(silent[0], silent[1:], LINE, LINE))
    assert (proof.proven, proof.word, proof.place) == ("not_exercised", "unknown", None)
    assert proof.unread[:2] == ("sequence of a", "sequence of b")


def test_discards_that_are_not_counted_are_not_called_none() -> None:
    rng = random.Random(2)
    sender = history(rng, "sender", RXE, {})
    soft_loss = prove(Load(history(rng, "receiver", RXE, {"sequence": 7}), [sender], LINE, None))
    assert (soft_loss.place, soft_loss.reason) == (
        None,
        "uncounted discards at the receiver, 7 out of sequence, 0 timeouts",
    )
    hard_loss = prove(Load(history(rng, "receiver", MLX5, {"sequence": 7}), [sender], LINE, LINE))
    assert (hard_loss.place, hard_loss.reason) == (SWITCH, "0 discards at the receiver, 7 out of sequence, 0 timeouts")


def test_a_link_without_a_rate_is_never_called_full() -> None:
    rng = random.Random(1)
    receiver = history(rng, "receiver", MLX5, {"roce": 10**11, "pause_out": 500})
    sender = history(rng, "sender", MLX5, {"pause_in": 500})
    assert prove(Load(receiver, [sender], LINE, LINE)).word == "exercised_ok"
    assert prove(Load(receiver, [sender], LINE, None)).word == "unknown"


@pytest.mark.parametrize(
    ("before", "after", "wraps", "moved"),
    [
        (5, 9, True, 4),
        (5, 5, True, 0),
        (2**32 - 2, 3, True, 5),
        (2**32 - 1, 0, True, 1),
        (2**32 - 2, 3, False, None),
        (100, 0, True, None),
        (2**40, 2**40 - 1, True, None),
    ],
)
def test_counters_that_come_round(before: int, after: int, wraps: bool, moved: int | None) -> None:
    assert delta(before, after, wraps=wraps) == moved
