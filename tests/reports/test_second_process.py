"""A module of this project runs in a process of its own, from whatever folder."""

import os
import subprocess

from reports import second_process


def test_a_module_runs_from_any_folder_with_this_tree(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("raise SystemExit('not this one')")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [*second_process.module_command("kernels.__main__"), "--op", "gossip"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("symlab: error: ")
    assert "gossip" in done.stderr
