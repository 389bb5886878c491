"""The journal of intents on a real file system, with real processes that are killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from pulumi_lium.lifecycle.intents import Intent
from pulumi_lium.recovery.intents import (
    STATE_DIR_VARIABLE,
    FileIntents,
    IntentLogError,
    UnreadableRecord,
    journal_folder,
)

OPENED = datetime(2026, 11, 30, 9, 0, tzinfo=timezone.utc)
INTENT = Intent(
    owner="org/project/stack/train",
    pod_name="train-a1b2c3-d4e5f6",
    idempotency_key="0b5a2f0e-6f0f-4d3c-9b57-7c8f6f3f0c11",
    base_url="http://127.0.0.1:8321/api",
    account=None,
    nodes=2,
    price_per_hour=32.0,
    opened_at=OPENED,
    body={"pod_name": "train-a1b2c3-d4e5f6", "executor_uuids": ["a", "b"]},
    snapshot=("e4a2c9d1",),
)

HOLDER = """
import sys
from pathlib import Path
from pydantic import TypeAdapter
from pulumi_lium.lifecycle.intents import Intent
from pulumi_lium.recovery.intents import FileIntents
log = FileIntents(Path(sys.argv[1]))
log.open(TypeAdapter(Intent).validate_json(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


def _encoded(intent: Intent) -> str:
    from pydantic import TypeAdapter

    return TypeAdapter(Intent).dump_json(intent).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "intents"


@pytest.fixture
def holder(folder: Path):
    """Another process that opened INTENT and lives until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), _encoded(INTENT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_an_intent_outlives_its_process_and_comes_back_whole(folder: Path, holder: subprocess.Popen[str]) -> None:
    later = FileIntents(folder)
    assert later.claim_abandoned() == []
    assert [(entry.intent, entry.held) for entry in later.look()] == [(INTENT, True)]

    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()

    assert [(entry.intent, entry.held) for entry in later.look()] == [(INTENT, False)]
    assert later.claim_abandoned() == [INTENT]


def test_only_one_of_two_processes_claims_an_abandoned_intent(folder: Path) -> None:
    first, second, third = FileIntents(folder), FileIntents(folder), FileIntents(folder)
    first.open(INTENT)
    first.release(INTENT.idempotency_key)
    assert second.claim_abandoned() == [INTENT]
    assert third.claim_abandoned() == []
    second.release(INTENT.idempotency_key)
    assert third.claim_abandoned() == [INTENT]


def test_many_claimers_at_once_share_the_intents_without_overlap(folder: Path) -> None:
    keys = [f"{number:08d}-key" for number in range(40)]
    opener = FileIntents(folder)
    for key in keys:
        opener.open(replace(INTENT, idempotency_key=key))
        opener.release(key)
    claimed: list[list[str]] = [[] for _ in range(4)]
    start = threading.Barrier(4)

    def claim(mine: list[str]) -> None:
        log = FileIntents(folder)
        start.wait()
        mine.extend(intent.idempotency_key for intent in log.claim_abandoned())

    threads = [threading.Thread(target=claim, args=(mine,)) for mine in claimed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key for mine in claimed for key in mine) == keys


def test_a_claim_is_of_the_named_owner_only_and_oldest_first(folder: Path) -> None:
    opener, later = FileIntents(folder), FileIntents(folder)
    young = replace(INTENT, idempotency_key="young-key", opened_at=OPENED + timedelta(hours=1))
    other = replace(INTENT, idempotency_key="other-key", owner="org/project/other/train")
    for intent in (young, other, INTENT):
        opener.open(intent)
        opener.release(intent.idempotency_key)
    assert later.claim_abandoned(INTENT.owner) == [INTENT, young]


def test_notes_replace_and_closing_forgets(folder: Path) -> None:
    log = FileIntents(folder)
    log.open(INTENT)
    noted = replace(INTENT, stage="listed", pod_ids=("p1", "p2"), cluster_id="c1")
    log.note(noted)
    assert [entry.intent for entry in log.look()] == [noted]
    log.close_cluster("another")
    assert [entry.intent for entry in log.look()] == [noted]
    log.close_cluster("c1")
    assert log.look() == []
    assert [path.name for path in folder.iterdir()] == [".journal.lock"]
    log.close(INTENT.idempotency_key)  # closing twice is no error


def test_a_write_that_was_cut_short_leaves_the_old_record(folder: Path) -> None:
    log = FileIntents(folder)
    log.open(INTENT)
    (folder / f".{INTENT.idempotency_key}.json.4242.tmp").write_text('{"owner": "org/pro')
    assert [entry.intent for entry in log.look()] == [INTENT]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"owner": "org"}', "<html>", "null"])
def test_an_unreadable_record_is_an_error_that_names_the_file(folder: Path, text: str) -> None:
    log = FileIntents(folder)
    log.open(INTENT)
    path = folder / f"{INTENT.idempotency_key}.json"
    path.write_text(text)
    for look in (log.look, FileIntents(folder).claim_abandoned, lambda: log.close_cluster("c1")):
        with pytest.raises(IntentLogError, match="may be billing") as failure:
            look()
        assert str(path) in str(failure.value)
    assert path.read_text() == text


def test_an_unreadable_record_is_set_aside_where_the_others_count(folder: Path) -> None:
    log = FileIntents(folder)
    log.open(INTENT)
    log.release(INTENT.idempotency_key)
    (folder / "zzzzzzzzzz.json").write_text("")
    for take in (log.look, log.claim_abandoned):
        with pytest.raises(IntentLogError, match="zzzzzzzzzz"):
            take()
        aside = list[UnreadableRecord]()
        assert len(take(aside=aside)) == 1
        (record,) = aside
        assert record.path == folder / "zzzzzzzzzz.json"
        assert "remove that file" in record.problem
        assert record.since is not None
    noted = replace(INTENT, stage="listed", cluster_id="c-1")
    log.note(noted)
    with pytest.raises(IntentLogError, match="zzzzzzzzzz"):
        log.close_cluster("c-1")
    assert log.look(aside=[]) == []


def test_a_record_under_a_strange_name_is_not_taken_for_another(folder: Path) -> None:
    log = FileIntents(folder)
    log.open(INTENT)
    (folder / "copied-by-hand.json").write_text(_encoded(INTENT))
    with pytest.raises(IntentLogError, match="names another key"):
        log.look()


def test_a_full_disk_is_said_before_anything_is_ordered_and_leaves_no_record(folder: Path) -> None:
    program = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))\n" + HOLDER.replace(
        'print("held", flush=True)\nsys.stdin.read()', ""
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program, str(folder), _encoded(INTENT)], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 1
    assert "nothing was ordered" in outcome.stderr
    assert STATE_DIR_VARIABLE in outcome.stderr
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == []


def test_a_note_that_could_not_be_written_does_not_keep_an_intent_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a later sweep would take the cluster of a state for one that an interrupted order left behind."""
    log = FileIntents(folder)
    log.open(INTENT)

    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("os.replace", full)
        with pytest.raises(IntentLogError, match="No space left"):
            log.note(replace(INTENT, stage="listed", cluster_id="f00d"))
    log.close_cluster("another")
    assert len(log.look()) == 1
    log.close_cluster("f00d")
    assert log.look() == []


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "a/b", "short", "ä" * 9, "x" * 101])
def test_a_key_that_is_no_file_name_is_refused(folder: Path, key: str) -> None:
    with pytest.raises(IntentLogError, match="cannot name an intent"):
        FileIntents(folder).open(replace(INTENT, idempotency_key=key))
    assert not folder.exists()


def test_records_are_private(folder: Path) -> None:
    FileIntents(folder).open(INTENT)
    path = folder / f"{INTENT.idempotency_key}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_state_folder_can_be_named(tmp_path: Path) -> None:
    assert journal_folder({STATE_DIR_VARIABLE: str(tmp_path)}) == tmp_path / "intents"
    assert journal_folder({}).parts[-2:] == ("pulumi-lium", "intents")
