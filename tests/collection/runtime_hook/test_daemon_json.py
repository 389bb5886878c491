"""The merge of daemon.json: what is kept, what is refused, and the way back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._runtime.daemon_json import (
    DaemonJsonError,
    flag_conflicts,
    for_reload,
    install,
    load,
    remove,
)
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OWN = {"runtimes", "default-runtime", "default-ulimits"}
SETTINGS = st.dictionaries(st.text().filter(lambda key: key not in OWN), VALUES, max_size=5)
MEMLOCK = {"Name": "memlock", "Hard": 64000, "Soft": 64000}


@st.composite
def files(draw: Any) -> str:
    settings: dict[str, Any] = draw(SETTINGS)
    if draw(st.booleans()):
        settings["runtimes"] = draw(st.sampled_from([{}, {"nvidia": {"path": "nvidia-container-runtime"}}]))
    if draw(st.booleans()):
        settings["default-ulimits"] = draw(st.sampled_from([{}, {"memlock": MEMLOCK}, {"nofile": {"Hard": 9}}]))
    if "nvidia" in settings.get("runtimes", {}) and draw(st.booleans()):
        settings["default-runtime"] = "nvidia"
    elif draw(st.booleans()):
        settings["default-runtime"] = "runc"
    return json.dumps(settings, indent=draw(st.sampled_from([2, 4, "\t"])), ensure_ascii=False)


@given(files(), st.sampled_from(["host", "pod"]))
def test_all_is_kept_and_comes_back(text: str, scope: str) -> None:
    before = json.loads(text)
    merged = install(text, scope)
    after = json.loads(merged.text)
    assert {key: value for key, value in after.items() if key not in OWN} == {
        key: value for key, value in before.items() if key not in OWN
    }
    assert [key for key in after if key in before] == list(before)
    assert install(merged.text, scope, merged.undo) == merged
    assert install(merged.text, scope, merged.undo).undo == merged.undo
    back = remove(merged.text, merged.undo)
    assert back is not None
    assert json.loads(back) == before
    assert [*json.loads(back)] == [*before]
    # A removal that was cut short between what Docker reloads and what stays.
    assert json.loads(remove(for_reload(back, "runc"), merged.undo) or "") == before


@given(st.text())
def test_any_text_is_merged_or_refused(text: str) -> None:
    try:
        merged = install(text, "pod")
    except DaemonJsonError:
        return
    assert json.loads(merged.text)["default-runtime"] == "lium-rdma"


def test_half_a_surrogate_pair_can_be_written() -> None:
    merged = install('{"a": "\\ud800"}', "host")
    assert '"a": "\\ud800"' in merged.text
    assert merged.text.encode()


def test_no_file_before_and_none_after() -> None:
    merged = install(None, "pod")
    assert set(json.loads(merged.text)) == OWN
    assert remove(merged.text, merged.undo) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "'a' stands there twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -1e400}', "-1e400 is too large a number"),
        ('{"a": 1' + "0" * 5000 + "}", "too large a number"),
        ('{"runtimes": []}', "runtimes is"),
        ('{"default-runtime": 1}', "default-runtime is 1"),
        ('{"default-runtime": "kata"}', "'kata' has no path"),
        ('{"default-runtime": "v", "runtimes": {"v": {"runtimeType": "io.containerd.runsc.v1"}}}', "has no path"),
        ('{"default-runtime": "site", "runtimes": {"site": {"path": "/usr/local/bin/lium-rdma-runc"}}}', "set it back"),
        ("[" * 100_000, "deeply"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(DaemonJsonError, match=words):
        install(text, "pod")


def test_a_host_with_our_default_is_refused() -> None:
    with pytest.raises(DaemonJsonError, match="rentals of a part of it"):
        install('{"default-runtime": "lium-rdma"}', "host")


def test_the_arguments_of_the_runtime_before_are_kept() -> None:
    text = '{"default-runtime": "t", "runtimes": {"t": {"path": "/bin/t", "runtimeArgs": ["--debug", "--root=/x"]}}}'
    assert install(text, "pod").chain == ["/bin/t", "--debug", "--root=/x"]


def test_a_default_that_was_chosen_since_is_what_comes_back() -> None:
    first = install("{}", "pod")
    changed = json.loads(first.text)
    changed["runtimes"]["crun"] = {"path": "/usr/bin/crun"}
    changed["default-runtime"] = "crun"
    second = install(json.dumps(changed), "pod", first.undo)
    assert second.chain == ["/usr/bin/crun"]
    assert json.loads(remove(second.text, second.undo) or "")["default-runtime"] == "crun"


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("/usr/bin/dockerd -H fd://", ["hosts"]),
        ("/usr/bin/dockerd --host=fd:// --label a=b -D", ["debug", "hosts", "labels"]),
        (["--add-runtime", "x=/x"], ["runtimes"]),
        ("ExecStart=/usr/bin/dockerd --containerd=/run/c.sock", []),
    ],
)
def test_flag_conflicts(command: Any, keys: list[str]) -> None:
    settings = load('{"hosts": [], "labels": [], "debug": true, "runtimes": {}}')
    assert flag_conflicts(settings, command) == keys
