"""Launchers in folders with odd names: what Hydra or a shell would read in a path is a name here."""

import pytest

from reports.record.bundle import record_files
from runner.launch.started import _literal, _quoted
from tests.patience import NEVER_S
from tests.runner.launch.test_joblib_sweep import symlab

SWEEP = ("op=barrier", "world_size=2", "algorithms=[push]", "fabric=simulator", "launches=1", "track=none")
ODD = "${y} it's \\ü, a=[b]"


@pytest.mark.parametrize(
    "text", ["/tmp/${y}", "/tmp/a'b", "/tmp/a\\b", "/tmp/a\\'b", "/tmp/a\\", "/tmp/a\\${x}'", "/tmp/$x", f"/tmp/{ODD}"]
)
def test_a_path_comes_through_hydra_as_it_is(text):
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    parsed = OverridesParser.create().parse_override(f"place={_quoted(_literal(text))}").value()
    assert OmegaConf.create({"place": str(parsed)}).place == text


@pytest.mark.slow
def test_a_sweep_in_an_odd_folder(tmp_path):
    folder = tmp_path / ODD
    folder.mkdir()
    process = symlab(folder, "run", "-m", *SWEEP, "seed=1,2,3", "hydra/launcher=joblib")
    said, _ = process.communicate(timeout=NEVER_S)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    (records,) = (folder / "records").iterdir()
    assert len(record_files(records)) == 3
    assert {path.name for path in tmp_path.iterdir()} == {ODD}
    assert {path.name for path in folder.iterdir()} == {"records"}
