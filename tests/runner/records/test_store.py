"""The store: whole files or none, nothing replaced, one clear line when the disk says no."""

import errno
import hashlib
import json
import os
import re
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest

from cases.case import Case
from cases.record.record import Record, Status, load
from cases.record.shared import is_shared_file
from reports.record.seal import broken
from runner.records.store import Store, StoreError

ID = "all_reduce-one_shot-float32-native-sum-n2-4B-out_of_place-normal-s0"


def refused(algorithm="one_shot", reason="no multicast"):
    case = Case("all_reduce", algorithm, "float32", "native", "sum", 4, 2)
    when = {"started": "2026-11-20T12:00:00Z", "ended": "2026-11-20T12:00:00Z", "duration_s": 0.0}
    return Record(id=case.id, status=Status.REFUSED, reason=reason, case=case, **when)


def names(folder):
    """Everything in a folder, but for what its records refer to."""
    shared = folder / "shared"
    return sorted(path.name for path in folder.rglob("*") if path != shared and not is_shared_file(path))


def test_what_is_written_is_read_back_and_never_replaced(tmp_path):
    store = Store(tmp_path / "deep" / "run")
    paths = [store.write(refused(reason=f"reason {count}")) for count in range(3)]
    assert paths[0] == tmp_path / "deep" / "run" / f"{ID}.json"
    assert names(store.folder) == [f"{ID}.2.json", f"{ID}.3.json", f"{ID}.json"]
    assert [load(path) for path in paths] == [refused(reason=f"reason {count}") for count in range(3)]
    assert store.write(refused(), job="7").name == f"7-{ID}.json"
    assert store.write(refused("../up/x y")).parent == store.folder


def test_secrets_stay_out_of_all_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("XYZZY_TOKEN", "plugh-plover")
    store = Store(tmp_path)
    assert load(store.write(refused(reason="plugh-plover said no"))).reason == "withheld said no"
    store.write_difference("+x = 'plugh-plover'\n+password = 'hunter2'\n")
    assert (tmp_path / "source.diff").read_text() == "+x = 'withheld'\n+password = 'withheld'\n"


def test_run_folders_never_collide(tmp_path):
    stores = [Store.create(tmp_path / "records", "exp=a b/..") for _ in range(50)]
    assert len({store.folder for store in stores}) == 50
    for store in stores:
        assert store.folder.parent == tmp_path / "records"
        assert re.fullmatch(r"\d{8}T\d{6}Z-exp-a-b-[0-9a-f]{8}", store.folder.name)
    assert Store.create(tmp_path, "//").folder.name.split("-")[1] == "run"


def test_a_taken_folder_name_is_passed_over(tmp_path, monkeypatch):
    tokens = iter(["same", "t1", "same", "same", "other", "t2"])
    of_a_name = {4, 8}
    monkeypatch.setattr("secrets.token_hex", lambda size: next(tokens) if size in of_a_name else "a mark")
    monkeypatch.setattr("runner.records.store.datetime", clock := Mock())
    clock.now.return_value.strftime.return_value = "T"
    first, second = Store.create(tmp_path, "x"), Store.create(tmp_path, "x")
    assert [first.folder.name, second.folder.name] == ["T-x-same", "T-x-other"]


def test_configuration_and_ptx(tmp_path):
    store = Store(tmp_path)
    assert store.write_configuration("op: all_reduce\n").read_text() == "op: all_reduce\n"
    text = ".version 8.1\n"
    hexadecimal = hashlib.sha256(text.encode()).hexdigest()
    for _ in range(2):
        path = store.write_ptx(f"sha256:{hexadecimal}", text)
        assert path == tmp_path / "ptx" / f"{hexadecimal}.ptx"
        assert path.read_text() == text
        path.write_text("a damaged one")
    store.write_ptx(f"sha256:{hexadecimal}", text)
    assert path.read_text() == text
    with pytest.raises(ValueError, match="not what its digest"):
        store.write_ptx(f"sha256:{hexadecimal}", text + " ")
    assert names(tmp_path) == sorted(["configuration.yaml", "ptx", f"{hexadecimal}.ptx"])


def full_disk(*arguments, **keywords):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullFile:
    """A file that takes half of the text and then finds the disk full, as a real one does."""

    def __init__(self, path, *arguments, **keywords):
        self.file = path.open("w", encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, text):
        self.file.write(text[: len(text) // 2])
        self.file.flush()
        full_disk()


@pytest.mark.parametrize(
    ("where", "stand_in"), [("os.fsync", full_disk), ("os.replace", full_disk), ("open", full_disk), ("open", FullFile)]
)
def test_full_disk(where, stand_in, tmp_path, monkeypatch):
    store = Store(tmp_path)
    kept = store.write(refused("before"))
    with monkeypatch.context() as patch:
        patch.setattr(f"runner.records.store.{where}", stand_in, raising=False)
        with pytest.raises(StoreError) as caught:
            store.write(refused())
    message = str(caught.value)
    assert [word for word in (ID, str(tmp_path), "No space left on device", "make room") if word not in message] == []
    assert "\n" not in message
    assert names(tmp_path) == [f"{ID.replace('one_shot', 'before')}.json"]
    assert load(kept) == refused("before")
    assert load(store.write(refused())) == refused()


def test_interrupt_leaves_nothing_half_written(tmp_path, monkeypatch):
    store = Store(tmp_path)
    monkeypatch.setattr("runner.records.store.os.fsync", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.write(refused())
    assert names(tmp_path) == []


def test_unwritable_places_are_known_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for make in (Store, lambda place: Store.create(place, "x")):
        with pytest.raises(StoreError, match=r"file.*; make room there or name another folder"):
            make(tmp_path / "file" / "records")
    with pytest.raises(StoreError, match="File exists"):
        Store(tmp_path / "file")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if not os.access(locked, os.W_OK):
        with pytest.raises(StoreError, match="Permission denied"):
            Store(locked)
    monkeypatch.setattr(Path, "touch", Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
    with pytest.raises(StoreError, match="Read-only file system"):
        Store.create(tmp_path, "x")


def test_a_folder_is_sealed_with_all_that_is_in_it(tmp_path):
    store = Store(tmp_path / "run")
    store.write(refused())
    assert store.seal().name == "manifest.sha256"
    assert broken(store.folder) == []
    store.write(refused())
    assert broken(store.folder) == [f"{ID}.2.json: not in manifest.sha256"]
    (store.folder / "a\nb").touch()
    with pytest.raises(StoreError, match=r"manifest.sha256 can't be made"):
        store.seal()


def test_what_is_set_aside_is_no_record_and_is_not_lost(tmp_path):
    store = Store(tmp_path)
    for text in ("one", "two", "three"):
        (tmp_path / "x.json").write_text(text)
        store.set_aside("x.json")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.json.set_aside": "one",
        "x.json.2.set_aside": "two",
        "x.json.3.set_aside": "three",
    }
    with pytest.raises(StoreError, match=r"x\.json: can't be written"):
        store.set_aside("x.json")


def test_a_name_that_is_not_utf_8_can_be_written(tmp_path):
    path = Store(tmp_path).write_text("x.txt", json.dumps({"name": "u\udcffv"}, ensure_ascii=False))
    assert json.loads(path.read_text(encoding="utf-8")) == {"name": "u\udcffv"}


@pytest.mark.parametrize(("mask", "folder_mode", "file_mode"), [(0o077, 0o700, 0o600), (0o022, 0o755, 0o644)])
def test_records_have_the_permissions_that_the_users_mask_leaves(tmp_path, mask, folder_mode, file_mode):
    before = os.umask(mask)
    try:
        store = Store.create(tmp_path / "records", "run")
        store.write(refused())
        store.write_ptx(f"sha256:{hashlib.sha256(b'ptx').hexdigest()}", "ptx")
        store.seal()
    finally:
        os.umask(before)
    places = [tmp_path / "records", *(tmp_path / "records").rglob("*")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in places}
    assert modes == {path.name: folder_mode if path.is_dir() else file_mode for path in places}
