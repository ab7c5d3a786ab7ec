"""What is installed, and how torch was built."""

from importlib import metadata
from types import SimpleNamespace

import mlflow.version
import numpy
import torch

from runner.environment import packages
from runner.environment.packages import installed, torch_build


def test_versions_are_those_of_what_is_imported():
    found = installed()
    assert (found["torch"], found["numpy"], found["mlflow"]) == (
        torch.__version__,
        numpy.__version__,
        mlflow.version.VERSION,
    )
    assert list(found) == sorted(found)
    assert found["ml-dtypes"] == metadata.version("ml_dtypes")
    assert found["nvidia-cutlass-dsl"] == metadata.version("nvidia-cutlass-dsl")
    assert len(found) > 20


def test_kinds_of_folders(tmp_path):
    def install(folder, file, text):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / file).write_text(text)

    install("first/Some_Thing-1.0+cu130.dist-info", "METADATA", "Name: Some_Thing\nVersion: 1.0+cu130\n\nVersion: no\n")
    install("first/old.style-2.0-py3.11.egg-info", "PKG-INFO", "Name: old.style\nVersion: 2.0\n")
    install("first/no-version.egg-info", "PKG-INFO", "Name: no-version\nVersion: 3.0\n")
    install("first/half-4.0.dist-info", "METADATA", "Name: half\n")
    install("second/some-thing-9.9.dist-info", "METADATA", "Name: some-thing\nVersion: 9.9\n")
    install("first/latin-4.1.dist-info", "METADATA", "Name: latin\nVersion: 4.1\n")
    (tmp_path / "first/latin-4.1.dist-info/METADATA").write_bytes(b"Author: \xe9\nName: latin\nVersion: 4.1\n")
    (tmp_path / "first" / "left_behind-5.0.dist-info").mkdir()
    (tmp_path / "first" / "just-a-folder").mkdir()
    found = installed([str(tmp_path / name) for name in ("first", "second", "none", "x.zip")])
    assert found == {"some-thing": "1.0+cu130", "old-style": "2.0", "no-version": "3.0"}


def test_torch_says_how_it_was_built():
    missing: dict[str, str] = {}
    found = torch_build(missing)
    assert not missing
    assert found["version"] == torch.__version__
    assert found["cuda"] == torch.version.cuda
    assert found["git_version"] == torch.version.git_version


def test_a_build_for_cuda_and_none_at_all(tmp_path, monkeypatch):
    lines = "__version__ = '2.13.0+cu130'\ncuda: str | None = '13.0'\ndebug = False\n"
    (tmp_path / "version.py").write_text(lines)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: spec)
    expected = {"version": "2.13.0+cu130", "cuda": "13.0", "debug": False, "hip": None, "git_version": None}
    missing: dict[str, str] = {}
    assert torch_build(missing) == expected
    (tmp_path / "version.py").unlink()
    assert torch_build(missing) is None
    assert "version.py" in missing["torch"]
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    assert torch_build(missing) is None
    assert missing["torch"] == "not installed"
