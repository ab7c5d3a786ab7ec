"""Which tests reach a line, from what tests/faults/recording.py wrote."""

import functools
import json
from collections import Counter, defaultdict
from pathlib import Path

from coverage import CoverageData

ALL = "all.coverage"


class Reached:
    """Recorded lines, and the seconds of each test function (of all its cases)."""

    def __init__(self, folder):
        """folder: as given to --record-to, one for each part of the tests, or a folder of such. Raises ValueError if
        nothing is there."""
        abouts = sorted(folder.rglob("recorded.*.json"))
        if not abouts:
            raise ValueError(f"nothing is recorded in {folder} (--recorded), record it first")
        self.seconds = defaultdict(float)
        roots = set()
        for about in abouts:
            found = json.loads(about.read_text(encoding="utf-8"))
            roots.add(found["root"])
            for test, seconds in found["seconds"].items():
                self.seconds[test] += seconds
        if len(roots) > 1:
            raise ValueError(f"{folder} has records of {' and '.join(sorted(roots))} (--recorded), give those of one")
        (self.root,) = roots
        self._data = _together(folder)
        files = [Path(one) for one in self._data.measured_files() if one.endswith(".py")]  # templates are recorded, too
        self.paths = {one.relative_to(self.root).as_posix() for one in files}

    def lines(self, path):
        """Return the lines of a file that some process ran, importing it included."""
        return set(self._data.lines(str(Path(self.root, path))) or ())

    @functools.cached_property
    def _widths(self):
        """Number of files that a test function runs lines of: the fewer, the closer it is to them."""
        found = Counter()
        for path in self.paths:
            found.update({one for tests in self._tests(path).values() for one in tests})
        return found

    def _tests(self, path):
        recorded = self._data.contexts_by_lineno(str(Path(self.root, path)))
        return {line: [test for test in tests if test] for line, tests in recorded.items()}

    def tests(self, fault):
        """Return the test functions that reach a fault, the closest first: those in the folder of its subject, then
        those that run few files. Of what runs as a file is imported these are all that run a line of the file."""
        by_line = self._tests(fault.path)
        lines = range(fault.first, fault.last + 1) if fault.is_inside else by_line
        found = {test for line in lines for test in by_line.get(line, ())}
        subject, stem = f"tests/{fault.room}/", Path(fault.path).stem

        def far(test):
            file = test.partition("::")[0]
            return Path(file).stem != f"test_{stem}", not file.startswith(subject), self._widths[test], test

        return sorted(found, key=far)

    def seconds_of(self, tests):
        return sum(self.seconds.get(one, 0.0) for one in tests)


def _together(folder):
    """All files as one, kept beside them until one is newer."""
    place = folder / ALL
    parts = [one for one in sorted(folder.rglob("recorded.*")) if one.suffix != ".json"]
    parts += [one for one in sorted(folder.rglob("started.*"))]
    if not place.exists() or place.stat().st_mtime < max(one.stat().st_mtime for one in parts):
        place.unlink(missing_ok=True)
        data = CoverageData(str(place))
        for part in parts:
            one = CoverageData(str(part))
            one.read()
            data.update(one)
        data.write()
    data = CoverageData(str(place))
    data.read()
    return data
