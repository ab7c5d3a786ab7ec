"""Compiles variants of kernels in whatever tree is first on the path. Started by tests/compare_code.py, as a process.

It uses only what every tree since the catalogue has: kernels.catalogue.find, its Case, kernels.compile. The
digest of code comes from the file that is named, because an older tree has none.

Arguments: the tree, the file with code_digest, a folder for compiled kernels. Standard input: a JSON list of
{"kernel", "label", "case", "arch"}. Standard output, one JSON document a line: first {"sources": {kernel: digest},
"compiler": {package: version}}, then for each variant {"kernel", "label", "code"}, or "error" in place of "code".
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    tree, code_file, cache_dir = (Path(argument) for argument in sys.argv[1:])
    asked = json.load(sys.stdin)
    import kernels.compile as compiler
    from kernels.catalogue import find

    assert Path(compiler.__file__).is_relative_to(tree), f"{compiler.__file__} is not in {tree}"
    module = importlib.util.spec_from_file_location("code_of_today", code_file)
    assert module is not None
    assert module.loader is not None
    code = importlib.util.module_from_spec(module)
    module.loader.exec_module(code)

    specs: dict[str, Any] = {}
    for name in dict.fromkeys(one["kernel"] for one in asked):
        try:
            specs[name] = find(name)
        except ValueError:
            specs[name] = None
    sources = {name: compiler.source_digest(spec) for name, spec in specs.items() if spec is not None}
    say({"sources": sources, "compiler": compiler.compiler_versions()})
    for one in asked:
        answer = {"kernel": one["kernel"], "label": one["label"]}
        spec = specs[one["kernel"]]
        if spec is None:
            say(answer | {"error": "no such kernel"})
            continue
        try:
            executable = compiler.executable(spec, case_of(one["case"]), one["arch"], cache_dir)
        except Exception as error:  # whatever an older tree raises for what it does not have
            say(answer | {"error": f"{type(error).__name__}: {error}".splitlines()[0]})
        else:
            say(answer | {"code": code.code_digest(executable.ptx)})


def case_of(values: dict[str, Any]) -> Any:
    """The case in this tree's terms: TypeError for a field that this tree does not have."""
    try:
        from cases.case import Case
    except ModuleNotFoundError:  # before the nouns had a package of their own
        from kernels.spec import Case

    return Case(**values)


def say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
