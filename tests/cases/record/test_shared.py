"""What records refer to: written once, read back equal, and named where it is missing or was changed."""

import dataclasses
import hashlib
import json
import lzma
import random
import shutil
import string
from pathlib import Path

import pytest

from cases.record.record import from_json, load
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.record.shared import Known, References, SharedError, is_shared_file, shared_path
from reports.record import bundle
from tests.golden import refused
from tests.reports.synthetic import KIB, record

DIGEST = "[0-9a-f]{64}"
EXAMPLES = Path(__file__).parents[2] / "reports" / "examples"
ENVIRONMENT = RecordedEnvironment(packages={"torch": "2.9.0", "absent": None}, capture_s=0.25)
REQUEST = RecordedRequest(command="c", configuration={"check": {"results": True}}, kernel={"choices": {"threads": 4}})


def members(count=3):
    """Records of one command, of one environment and one job; each kernel has choices of its own."""
    return [
        dataclasses.replace(
            record("one_shot", KIB * (number + 1), world=number % 10),
            environment=ENVIRONMENT,
            request=dataclasses.replace(REQUEST, kernel={"choices": {"threads": number}}),
        )
        for number in range(count)
    ]


def kept(folder, records):
    """Write records into a folder as a command does."""
    references, paths = References(), []
    (folder / "shared").mkdir(parents=True)
    for one in records:
        paths.append(folder / f"{one.id}.json")
        paths[-1].write_text(one.referring(references), encoding="utf-8")
    for digest, text in references.texts.items():
        (folder / shared_path(digest)).write_text(text, encoding="utf-8")
    return paths


def shared_files(folder):
    """The files that records refer to: of the environment, and of the request."""
    found = {}
    for path in (folder / "shared").iterdir():
        found["environment" if "packages" in json.loads(path.read_text()) else "request"] = path
    return found


def test_a_folder_holds_environment_and_request_once(tmp_path):
    paths = kept(tmp_path, members())
    assert [load(path) for path in paths] == members() == bundle.read([tmp_path])
    assert [load(path).to_json() for path in paths] == [one.to_json() for one in members()]
    assert len(list((tmp_path / "shared").iterdir())) == 2
    for path in (tmp_path / "shared").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
        assert is_shared_file(path)
    assert all("torch" not in path.read_text() and '"threads"' in path.read_text() for path in paths)
    assert not any(map(is_shared_file, paths))


def test_records_of_one_command_have_the_same_objects(tmp_path):
    kept(tmp_path, members())
    read = bundle.read([tmp_path])
    assert len({id(one.environment) for one in read}) == 1
    (tmp_path / "older").mkdir()
    for number, one in enumerate(members()):
        text = dataclasses.replace(one, schema=2, request=REQUEST).to_json()
        (tmp_path / "older" / f"{number}.json").write_text(text)
    older = bundle.read([tmp_path / "older"])
    assert len({id(one.environment) for one in older}) == len({id(one.request) for one in older}) == 1


def test_one_and_true_are_not_the_same_environment():
    known = Known()
    for value in (1, True, 1.0, "1", None):
        made = record(environment={"host": {"x": value}})
        again = from_json(made.to_json(), known=known)
        assert type((again.environment.host or {})["x"]) is type(value)


@pytest.mark.parametrize("part", ["environment", "request"])
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_text(path.read_text().replace("c", "d", 1)),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff"),
    ],
    ids=["missing", "changed", "empty", "no text"],
)
def test_what_is_missing_or_was_changed_is_one_line(part, damage, tmp_path):
    path, *_ = kept(tmp_path, members())
    culprit = shared_files(tmp_path)[part]
    damage(culprit)
    for read in (lambda: load(path), lambda: bundle.read([tmp_path])):
        with refused(ValueError, DIGEST) as caught:
            read()
        assert culprit.name in str(caught.value)


@pytest.mark.parametrize("text", ["[1]", "{", '{"shared": "x"}', '{"packages": 3}'])
def test_another_content_with_its_own_digest_is_one_line(text, tmp_path):
    path, *_ = kept(tmp_path, members())
    digest = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "shared" / f"{digest}.json").write_text(text)
    document = json.loads(path.read_text()) | {"environment": {"shared": f"sha256:{digest}"}}
    path.write_text(json.dumps(document))
    with refused(ValueError, DIGEST):
        load(path)


def test_references_are_strict(tmp_path):
    path, *_ = kept(tmp_path, members())
    document, zeros = json.loads(path.read_text()), f"sha256:{'0' * 64}"
    for changes in (
        *({"environment": {"shared": one}} for one in ("sha256:../../x", ["x"])),
        {"environment": {"shared": zeros, "git": {}}},
        {"request": {"shared": zeros, "job": 2}},
    ):
        path.write_text(json.dumps(document | changes))
        with refused():
            load(path)


def test_what_is_the_records_own_is_not_given_twice(tmp_path):
    path, *_ = kept(tmp_path, members())
    content = {**json.loads(shared_files(tmp_path)["request"].read_text()), "kernel": {}}
    text = json.dumps(content)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "shared" / f"{digest}.json").write_text(text)
    document = json.loads(path.read_text())
    document["request"]["shared"] = f"sha256:{digest}"
    path.write_text(json.dumps(document))
    with refused(ValueError, DIGEST):
        load(path)


def test_a_record_by_itself_has_all_of_it(tmp_path):
    path, *_ = kept(tmp_path, members())
    alone = tmp_path / "elsewhere" / "one.json"
    alone.parent.mkdir()
    alone.write_text(load(path).to_json())
    assert load(alone) == members()[0]
    shutil.copy(path, alone)
    with refused(SharedError, DIGEST):
        load(alone)
    with refused(SharedError, DIGEST):
        from_json(path.read_text())


def test_the_same_digest_in_another_folder_does_not_help(tmp_path):
    kept(tmp_path / "a", members())
    kept(tmp_path / "b", members())
    shared_files(tmp_path / "b")["environment"].unlink()
    with refused(SharedError, DIGEST):
        bundle.read([tmp_path])


def test_a_bundle_takes_along_what_its_records_refer_to(tmp_path):
    path = tmp_path / "all.jsonl.xz"
    bundle.write(members(), path)
    assert bundle.unpacked(path) == members()
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    assert len(lines) == len(members()) + 2
    assert sum("torch" in line for line in lines) == 1

    def packed(some):
        path.write_bytes(lzma.compress("".join(f"{line}\n" for line in some).encode()))

    packed(lines[1:])
    with refused(ValueError, DIGEST):
        bundle.read([path])
    packed([line.replace("2.9.0", "2.9.1") for line in lines])
    with refused(ValueError, DIGEST, "line [12]"):
        bundle.read([path])
    packed([f'{lines[0][:-1]}, "x": 1}}', *lines[1:]])
    with refused():
        bundle.read([path])


def _value(chance, depth=0):
    kinds = [
        lambda: chance.choice([None, True, False, 0, 1, -1, 2**64 - 1, 0.1, -0.0, 1e300, 5e-324, "", "é\u2028\x7f"]),
        lambda: "".join(chance.choices(string.printable, k=5)),
    ]
    if depth < 3:
        kinds += [
            lambda: [_value(chance, depth + 1) for _ in range(chance.randrange(4))],
            lambda: {f"k{chance.randrange(9)}\n": _value(chance, depth + 1) for _ in range(chance.randrange(4))},
        ]
    return chance.choice(kinds)()


@pytest.mark.parametrize("seed", range(30))
def test_any_content_comes_back_to_the_byte(seed, tmp_path):
    chance = random.Random(seed)
    made = record(environment={"host": {"x": _value(chance)}})
    (path,) = kept(tmp_path / "folder", [made])
    bundle.write([made], tmp_path / "one.jsonl.xz")
    (packed,) = bundle.unpacked(tmp_path / "one.jsonl.xz")
    assert load(path).to_json() == packed.to_json() == made.to_json()


def test_the_forms_of_today_are_read_for_ever():
    (path,) = (EXAMPLES / "schema8").glob("*.json")
    whole = load(EXAMPLES / "schema8_simulated.json")
    assert load(path) == whole
    assert bundle.unpacked(EXAMPLES / "schema8.jsonl.xz") == [whole]
    assert load(path).referring(References()) == path.read_text(encoding="utf-8")
    assert load(path).to_json() == (EXAMPLES / "schema8_simulated.json").read_text(encoding="utf-8")
