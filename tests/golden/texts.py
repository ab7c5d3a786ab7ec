"""The file of texts: a line with a test's node id, then its text, each line after four blanks."""

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PLACE = Path(__file__).with_name("texts.txt")
_BLANKS = "    "


@dataclass(frozen=True)
class Texts:
    """Texts by key: the node id of a test, with " #2" for its second text."""

    by_key: Mapping[str, str]

    @classmethod
    def read(cls, place):
        found: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in place.read_text(encoding="utf-8").splitlines() if place.exists() else ():
            if line.startswith(_BLANKS) or not line:
                lines.append(line.removeprefix(_BLANKS))
            else:
                lines = found[line] = []
        return cls({key: "\n".join(some) for key, some in found.items()})

    @staticmethod
    @functools.cache
    def stored():
        return Texts.read(PLACE)

    def of(self, key):
        return self.by_key.get(key)

    def write(self, place):
        lines = []
        for key in sorted(self.by_key):
            lines += [key, *(f"{_BLANKS}{line}".rstrip() for line in self.by_key[key].split("\n"))]
        place.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    @staticmethod
    def add(folder, key, text):
        """Note a text that a test saw in a folder, which many processes write to at once."""
        with (folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, text]) + "\n")

    def renewed(self, seen, collected, ran):
        """Return these texts after a run: what its tests saw, and what they did not see goes with tests that ran or
        that are no longer in a file that was collected. Tests that were skipped keep their texts."""
        there, done = set(collected), set(ran)
        files = {one.partition("::")[0] for one in there}

        def stays(key):
            test = test_of(key)
            return test.partition("::")[0] not in files or (test in there and test not in done)

        return Texts({**{key: text for key, text in self.by_key.items() if stays(key)}, **seen})


def test_of(key):
    """Return the node id of a key."""
    test, mark, number = key.rpartition(" #")
    return test if mark and number.isdigit() else key


def seen_in(folder):
    """Return what Texts.add noted in a folder."""
    files = sorted(folder.glob("*.jsonl"))
    return dict(json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines())
