"""The kernels that records name, compiled by the code of their commit in a process of its own."""

import contextlib
import textwrap

from cases.record.record import KernelInfo
from symlab.speed.predict import recorded_kernels
from tests.reports.synthetic import record

PTX = ".version 8.0"
DIGEST = recorded_kernels.digest_of(PTX)

SOURCES = {
    "catalogue.py": """
        from types import SimpleNamespace

        def find(name):
            launch = SimpleNamespace(grid=(2, 1, 1), block=(64, 1, 1))
            return SimpleNamespace(launch=lambda case: launch, workspaces=lambda case: (), parameters=())
    """,
    "compile.py": """
        import compiler
        from kernels.spec import Case

        def executable(spec, case, arch, cache_dir):
            assert isinstance(case, Case), "the commit's own"
            return compiler.made()
    """,
    "spec.py": """
        class Case:
            def __init__(self, **values):
                self.name = values["algorithm"]
    """,
}
"""A commit's kernels/, which need a compiler that is not beside them."""

COMPILER = f"""
    from types import SimpleNamespace

    def made():
        return SimpleNamespace(digest={DIGEST!r}, entry="kernel", ptx={PTX!r})
"""


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def test_a_compiler_on_pythons_path_alone_is_found(tmp_path, monkeypatch):
    """As on a machine where nothing can be installed, and packages are carried into a folder."""
    code, elsewhere = tmp_path / "code", tmp_path / "site"
    for name, text in SOURCES.items():
        written(code / "kernels" / name, text)
    written(code / "kernels" / "__init__.py", "")
    written(elsewhere / "compiler.py", COMPILER)

    @contextlib.contextmanager
    def recorded_code(records, root):
        yield "c0ffee", code

    monkeypatch.setattr(recorded_kernels, "_recorded_code", recorded_code)
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    kernel = KernelInfo("all_reduce/one_shot", "kernel", "sm_90a", DIGEST, "", "", "a compiler", 2, 64)
    found = recorded_kernels.compiled([record(kernel=kernel)], tmp_path, tmp_path / "cache")
    assert found["kernels"] == {DIGEST: {"entry": "kernel", "ptx": PTX}}
