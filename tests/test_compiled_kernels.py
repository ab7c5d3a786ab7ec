"""The folder of compiled kernels that runs of the tests keep: private, bounded, absent where pytest keeps nothing."""

import os
import stat
from types import SimpleNamespace

from tests import compiled_kernels


def config(place):
    place.mkdir(exist_ok=True)
    return SimpleNamespace(cache=SimpleNamespace(mkdir=lambda name: place))


def test_it_is_for_this_user_alone(tmp_path):
    place = tmp_path / "kept"
    assert compiled_kernels.folder(config(place)) == place
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_there_is_none_where_others_could_replace_it(tmp_path):
    above = tmp_path / "open"
    above.mkdir()
    above.chmod(0o777)
    assert compiled_kernels.folder(config(above / "kept")) is None


def test_there_is_none_without_pytests_cache():
    assert compiled_kernels.folder(SimpleNamespace()) is None


def test_the_oldest_go_first(tmp_path):
    for age, name in enumerate(("new", "old", "oldest")):
        path = tmp_path / f"{name}.json"
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 - age, 1000 - age))
    assert compiled_kernels.bound(tmp_path, 300) == 0
    assert compiled_kernels.bound(tmp_path, 299) == 1
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["new", "old"]
    assert compiled_kernels.bound(tmp_path, 0) == 2
