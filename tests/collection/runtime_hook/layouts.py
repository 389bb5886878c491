"""Generated network cards of a pod, as a sysfs tree or as the output of `ibv_devinfo -v`, and what is right for each.

What is right follows from how a layout is built, not from reading it back: each port is given its part first, and the
files are written to suit.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

STATES = {"ACTIVE": 4, "DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE_DEFER": 5}


class Entry(NamedTuple):
    """A filled slot of a GID table: eight groups, as sysfs prints them."""

    slot: int
    gid: str
    type: str


class Card(NamedTuple):
    """A port to write. `state` as in STATES."""

    device: str
    port: int
    state: str
    link_layer: str
    gids: tuple[Entry, ...]


class Layout(NamedTuple):
    """Cards, and what is right for them: `kind` is roce, infiniband, refused or ambiguous."""

    cards: tuple[Card, ...]
    kind: str
    segment: str
    hca: str
    gid_index: str | None


def mapped(address: str) -> str:
    a, b, c, d = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def _decoys(rng: random.Random, slots: list[int], address: str | None) -> list[Entry]:
    """Entries that are never right: link-local ones, v1 twins, and addresses that no fabric has."""
    made = []
    for slot in slots:
        what = rng.choice(["fe80 v1", "fe80 v2", "v1 twin", "169.254", "127", "global v6"])
        link_local = f"fe80:0000:0000:0000:02aa:bbff:fecc:{rng.randrange(1, 0xFFFF):04x}"
        if what == "v1 twin" and address:
            made.append(Entry(slot, mapped(address), "IB/RoCE v1"))
        elif what == "169.254":
            made.append(Entry(slot, mapped(f"169.254.{rng.randrange(256)}.{rng.randrange(1, 255)}"), "RoCE v2"))
        elif what == "127":
            made.append(Entry(slot, mapped(f"127.0.0.{rng.randrange(1, 255)}"), "RoCE v2"))
        elif what == "global v6":
            made.append(Entry(slot, f"2001:0db8:0000:0000:0000:0000:0000:{rng.randrange(1, 0xFFFF):04x}", "RoCE v2"))
        else:
            made.append(Entry(slot, link_local, "IB/RoCE v1" if what == "fe80 v1" else "RoCE v2"))
    return made


def layout(seed: int) -> Layout:
    rng = random.Random(seed)
    stem = rng.choice(["mlx5_", "mlx5_", "bnxt_re", "rocep", "irdma", "mlx5_bond_"])
    count = rng.choice([1, 2, 4, 8, 10, 12])
    names = [f"{stem}{number}" for number in rng.sample(range(count + 4), count)]
    fabric, storage = "10.20.30", f"10.{rng.randrange(60, 90)}.7"
    same_index = rng.random() < 0.75
    shared_slot = rng.choice([1, 3, 3, 5, 7, 12])
    lone_storage = rng.random() < 0.3
    with_infiniband = rng.random() < 0.15
    cards, rails, storage_active = [], [], False
    for position, name in enumerate(names):
        for port in range(1, 1 + rng.choice([1, 1, 1, 2])):
            part = rng.choices(["fabric", "storage", "down", "no address"], [6, 1 if lone_storage else 0, 2, 1])[0]
            slot = shared_slot if same_index else rng.choice([1, 3, 5, 7])
            address = f"{storage if part == 'storage' else fabric}.{10 + 2 * position + port}"
            lower = [index for index in range(slot) if rng.random() < 0.6]
            higher = [slot + 1 + index for index in range(3) if rng.random() < 0.4]
            gids = _decoys(rng, lower, address)
            if part != "no address":
                gids.append(Entry(slot, mapped(address), "RoCE v2"))
                if part != "storage" and rng.random() < 0.2:  # a second address of the fabric: the first slot counts
                    gids.append(Entry(slot + 4, mapped(f"{fabric}.{200 + position}"), "RoCE v2"))
            gids += _decoys(rng, [index for index in higher if index != slot + 4], address)
            down = rng.choice(["DOWN", "INIT", "ARMED", "ACTIVE_DEFER"])
            state = down if part == "down" else "ACTIVE"
            cards.append(Card(name, port, state, "Ethernet", tuple(sorted(gids))))
            if part == "fabric":
                rails.append((name, port, slot))
            storage_active = storage_active or part == "storage"
    if with_infiniband:
        gid = "fe80:0000:0000:0000:946d:ae03:0011:2244"
        cards.append(Card("ibp1s0", 1, "ACTIVE", "InfiniBand", (Entry(0, gid, ""),)))
        return Layout(tuple(cards), "infiniband", "", "", None)
    segment = f"{fabric}.0/24"
    if not rails:
        return Layout(tuple(cards), "refused", segment, "", None)
    slots = {slot for _, _, slot in rails}
    hca = "=" + ",".join(f"{name}:{port}" for name, port, _ in sorted(rails))
    index = str(next(iter(slots))) if len(slots) == 1 else None
    return Layout(tuple(cards), "ambiguous" if storage_active else "roce", segment, hca, index)


def write_sysfs(root: Path, cards: tuple[Card, ...]) -> None:
    """Empty slots have a GID of zeros and no type that could be read, as in the kernel."""
    for card in cards:
        folder = root / "sys/class/infiniband" / card.device / "ports" / str(card.port)
        for name in ("gids", "gid_attrs/types"):
            (folder / name).mkdir(parents=True)
        (folder / "state").write_text(f"{STATES[card.state]}: {card.state}\n")
        (folder / "link_layer").write_text(f"{card.link_layer}\n")
        filled = {entry.slot: entry for entry in card.gids}
        for slot in range(max(filled, default=0) + 2):
            gid = filled[slot].gid if slot in filled else ":".join(["0000"] * 8)
            (folder / "gids" / str(slot)).write_text(f"{gid}\n")
            if slot in filled and filled[slot].type:
                (folder / "gid_attrs/types" / str(slot)).write_text(f"{filled[slot].type}\n")


def ibv_devinfo(cards: tuple[Card, ...]) -> str:
    """`ibv_devinfo -v`: v1 entries in full, v2 ones short, none of the empty ones (host-contract 3.1)."""
    lines = []
    for card in cards:
        number = STATES[card.state]
        state = f"invalid state ({number})" if number == 5 else f"PORT_{card.state} ({number})"
        lines += [f"hca_id:\t{card.device}", "\ttransport:\t\t\tInfiniBand (0)", f"\t\tport:\t{card.port}"]
        lines += [f"\t\t\tstate:\t\t\t{state}", f"\t\t\tlink_layer:\t\t{card.link_layer}"]
        for entry in card.gids:
            text, suffix = entry.gid, ", RoCE v1"
            if entry.type != "IB/RoCE v1":
                groups = entry.gid.split(":")
                text = _short(groups)
                suffix = ", RoCE v2" if entry.type else ""
            lines.append(f"\t\t\tGID[{entry.slot:3}]:\t\t{text}{suffix}")
        lines.append("")
    return "\n".join(lines) + "\n"


def _short(groups: list[str]) -> str:
    if groups[5] == "ffff" and set(groups[:5]) == {"0000"}:
        octets = [int(group[part : part + 2], 16) for group in groups[6:] for part in (0, 2)]
        return "::ffff:" + ".".join(map(str, octets))
    head = [f"{int(group, 16):x}" for group in groups]
    first = next(index for index, group in enumerate(head) if group == "0")
    last = first
    while last < 8 and head[last] == "0":
        last += 1
    return ":".join(head[:first]) + "::" + ":".join(head[last:])
