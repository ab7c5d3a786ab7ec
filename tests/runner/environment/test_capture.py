"""The environment: what is there is told, what is not is said so, and secrets stay out."""

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from runner.environment import capture as capture_module
from runner.environment.capture import LOOKS_SECRET, capture

REPOSITORY = Path(__file__).parents[3]

SECRETS = {
    "NCCL_PLUGIN_TOKEN": "plain",
    "SLURM_JWT": "x",
    "CUDA_HELPER_PASSWORD": "hunter2",
    "TORCH_HUB_URL": "https://somebody:pa55@models.example/x",
    "TORCH_MIRROR": "postgres://root@db/x",
    "TORCH_HUB": "ghp_" + "a1" * 18,
    "NVSHMEM_REMARK": "use token=abcdef please",
    "CUTE_REMARK": "Bearer abcdefghijkl",
    "SLURM_REMARK": "0123456789abcdef0123456789abcdef",
    "NCCL_REMARK": "eyJhbGciOiJIUzI1NiJ9.e30.abc",
    "TORCH_PEM": "-----BEGIN RSA PRIVATE KEY-----",
}
HARMLESS = {
    "NCCL_DEBUG": "INFO",
    "NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1",
    "CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,1",
    "TORCH_CUDA_ARCH_LIST": "9.0a;10.0a",
    "CUDA_HOME": "/usr/local/cuda-13.0/targets/x86_64-linux",
    "NVSHMEM_SYMMETRIC_SIZE": "1G",
    "CUTE_DSL_ARCH": "sm_90a",
    "SLURM_JOB_NODELIST": "node[001-016]",
}


@pytest.fixture(autouse=True)
def _nothing_kept():
    capture_module._kept.clear()
    yield
    capture_module._kept.clear()


def test_what_is_captured_is_json_and_true():
    found = capture(REPOSITORY)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["python"]["version"] == platform.python_version()
    assert found["packages"]["torch"] == metadata.version("torch")
    assert found["packages"]["nvidia-cutlass-dsl"] == metadata.version("nvidia-cutlass-dsl")
    assert found["host"]["cores"] == os.cpu_count()
    assert found["host"]["kernel"] == platform.release()
    for name in ("git", "gpus"):
        assert (found[name] is None) == (name in found["not_captured"])


def test_no_repository_and_no_git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    found = capture(tmp_path)
    assert found["git"] is None
    assert "not a git repository" in found["not_captured"]["git"]
    capture_module._kept.clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    found = capture(tmp_path)
    assert found["git"] is None
    assert found["not_captured"]["git"]
    capture_module._kept.clear()
    assert capture(tmp_path / "gone")["git"] is None


def test_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith(capture_module.ALLOWED) or name in capture_module.ALLOWED_NAMES:
            monkeypatch.delenv(name)
    others = len(os.environ)
    for name, value in (SECRETS | HARMLESS).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNRELATED_THING", "xyzzy-plugh")
    monkeypatch.setenv("TORCH_HOME", os.path.expanduser("~/models"))
    found = capture(REPOSITORY)
    expected = dict.fromkeys(SECRETS, LOOKS_SECRET) | HARMLESS | {"TORCH_HOME": "~/models"}
    assert found["variables"] == {"allowed": expected, "withheld": others + 1}
    text = json.dumps({**found, "git": None})  # the difference of these very sources holds them
    for value in (*SECRETS.values(), "xyzzy", "UNRELATED_THING", "hunter2"):
        if len(value) > 5:
            assert value not in text


def test_once_a_process(monkeypatch):
    first = capture(REPOSITORY)
    monkeypatch.setattr(capture_module, "_capture", lambda root: pytest.fail("captured twice"))
    assert capture(str(REPOSITORY)) is first


def test_imports_nothing_heavy():
    program = (
        "import sys; from runner.environment.capture import capture; capture('.'); "
        "print([name for name in ('torch', 'cutlass', 'mlflow', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
