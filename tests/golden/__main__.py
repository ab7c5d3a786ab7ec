"""python -m tests.golden [FILE ..] [-- OPTION ..]: run the tests that check texts, and write what they see into
texts.txt. Without files it runs all that import tests.golden. Options are pytest's.

Exit code 0; 1 if a test failed for something else than its text, which then keeps its old text.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.golden import ROOT, WRITE_TO
from tests.golden.texts import PLACE, Texts, seen_in, test_of


def main(given):
    """Return the exit code."""
    files, _, options = " ".join(given).partition("--") if "--" in given else (" ".join(given), "", "")
    chosen = files.split() or users()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        environment = {**os.environ, WRITE_TO: folder}
        pytest = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu", "-p", "tests.golden.noting", *options.split()]
        code = subprocess.run([*pytest, *chosen], cwd=ROOT, env=environment, check=False).returncode
        place = Path(folder)
        collected, ran = (set(_lines(place / name)) for name in ("collected", "ran"))
        seen = {key: text for key, text in seen_in(place).items() if test_of(key) in ran}
    old = Texts.read(PLACE)
    new = old.renewed(seen, collected, ran)
    new.write(PLACE)
    changed = sum(old.of(key) != text for key, text in new.by_key.items())
    gone = len(old.by_key.keys() - new.by_key.keys())
    print(f"{PLACE.relative_to(ROOT)}: {len(new.by_key)} texts, {changed} new or changed, {gone} gone")
    return int(code != 0)


def users():
    """Return the files of tests that check texts."""
    found = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(one.relative_to(ROOT)) for one in found if "from tests.golden import" in one.read_text())


def _lines(place):
    return place.read_text(encoding="utf-8").splitlines() if place.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
