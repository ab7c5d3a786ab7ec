"""Secrets: what looks like one goes, whatever it stands in; what records need stays to the letter."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cases.record.record import Check, Status
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.refusal import Refusal
from reports.record import bundle
from runner.records.scrub import WITHHELD, is_secret, scrubbed, scrubbed_record, scrubbed_values, without_secrets
from tests.reports.synthetic import refused

PUBLISHED = sorted((Path(__file__).parents[3] / "reports" / "published").glob("*/*.jsonl.xz"))
RANDOM = "kJ8vQ2mZr5Tx0Wc7Yb3Nd6Lf9Hg1Ps4A"

LEAKS = [
    ("http://me:pa55word@host:5000/x", "pa55word", f"http://{WITHHELD}@host:5000/x"),
    ("http://me:p@ssword@host/x", "ssword", f"http://{WITHHELD}@host/x"),
    ("postgresql://me:pa/ssword@db:5432/x", "ssword", f"postgresql://{WITHHELD}@db:5432/x"),
    ("https://abcdef0123@host/x", "abcdef0123", f"https://{WITHHELD}@host/x"),
    ("track.uri=http://me:pa55word@host", "pa55word", f"track.uri=http://{WITHHELD}@host"),
    ("clone of https://me:pa55word@host failed", "pa55word", f"clone of https://{WITHHELD}@host failed"),
    ("Authorization: Bearer abc.def-ghi_jkl", "abc.def", f"Authorization: Bearer {WITHHELD}"),
    ("Authorization: Basic dXNlcjpwYTU1", "dXNlcj", f"Authorization: Basic {WITHHELD}"),
    ("got eyJhbGciOiJIUzI1NiJ9.e30K.abc-_d back", "eyJ", f"got {WITHHELD} back"),
    ("ghp_0123456789abcdef", "ghp_", WITHHELD),
    ("track.experiment=hf_abcdefghijkl", "hf_", f"track.experiment={WITHHELD}"),
    ("token=abcdef please", "abcdef", f"token={WITHHELD} please"),
    ("API_KEY='a b c'; next", "a b c", f"API_KEY='{WITHHELD}'; next"),
    ('{"password": "hunter2", "x": 1}', "hunter2", f'{{"password": "{WITHHELD}", "x": 1}}'),
    ("DB_PASSWORD: hunter22", "hunter22", f"DB_PASSWORD: {WITHHELD}"),
    ('    secret: str = "hunter2"', "hunter2", f'    secret: str = "{WITHHELD}"'),
    ("--api-key hunter2 --x", "hunter2", f"--api-key {WITHHELD} --x"),
    ("https://host/x?access_token=hunter2&y=1", "hunter2", f"https://host/x?access_token={WITHHELD}"),
    (f"it said {RANDOM}== then", RANDOM, f"it said {WITHHELD} then"),
    ("-----BEGIN RSA PRIVATE KEY-----\n+MIIEow\n+zzz=\n-----END RSA PRIVATE KEY-----\n+x", "MIIEow", f"{WITHHELD}\n+x"),
    ("-----BEGIN PRIVATE KEY----- | MIIEow | zzz=", "MIIEow", WITHHELD),
    ("/home/somebody/x and /Users/somebody/y", "somebody", "~/x and ~/y"),
    ("sqlite:////home/somebody/mlflow.db", "somebody", "sqlite:///~/mlflow.db"),
    ("a:/root:b /root/x -I/root/y", "/root", "a:~:b ~/x -I~/y"),
]

HARMLESS = [
    "sha256:" + "0a" * 32,
    "0123456789abcdef0123456789abcdef01234567",
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "all_reduce-two_shot_lamport-bfloat16-float32-sum-8x1048576-normal-s0-out_of_place",
    "20260121T010834Z-allreduce_bf16-8f748bb2",
    "track.uri=sqlite:///mlflow.db",
    "http://localhost:5000/a@b",
    "fabric.seed=7 sizes=[6,1K,1M] root=3 tokens",
    "the basic understanding of a bearer",
    "a barrier's token: 4 bytes",
    "/rootfs /data/home/me/x kernels/root.py ~/x /home",
    "KeyError: 'world_size' (runner/command/job.py:12)",
    "multimem.ld_reduce.relaxed.sys.global.add.v4.bf16x2",
    "user@host 3 @ 4",
]


@pytest.fixture(autouse=True)
def _no_secrets_of_this_machine(monkeypatch, tmp_path):
    for name in list(os.environ):
        if is_secret(name, ""):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))


def test_what_looks_like_a_secret_goes_and_all_else_stays():
    for text, leak, expected in LEAKS:
        assert leak in text
        assert scrubbed(text) == expected
        assert scrubbed(expected) == expected
    assert [scrubbed(text) for text in HARMLESS] == HARMLESS


def test_a_secret_variables_value_goes_wherever_it_stands(monkeypatch):
    text = 'x plugh "quoted" y: plugh%20%22quoted%22 z: plugh \\"quoted\\"; plover'
    assert scrubbed(text) == text
    monkeypatch.setenv("MY_TOKEN", ' plugh "quoted" ')
    monkeypatch.setenv("XYZZY", "plover")
    monkeypatch.setenv("SHORT_SECRET", "plov")
    assert scrubbed(text) == f"x {WITHHELD} y: {WITHHELD} z: {WITHHELD}; plover"
    monkeypatch.setenv("XYZZY_PASSWORD", "plover")
    assert scrubbed(text) == f"x {WITHHELD} y: {WITHHELD} z: {WITHHELD}; {WITHHELD}"


def test_where_a_secret_lies_is_none(monkeypatch, tmp_path):
    key = tmp_path / "key"
    monkeypatch.setenv("TLS_PRIVATE_KEY", str(key))
    assert scrubbed(f"reads {key}") == f"reads {WITHHELD}"
    key.touch()
    assert scrubbed(f"reads {key}") == f"reads {key}"


def test_the_own_home_folder_wherever_it_is(monkeypatch, tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    monkeypatch.setenv("HOME", str(link))
    assert scrubbed(f"{link}/x {real}/y:{link} {link}s /data{link}/z") == f"~/x ~/y:~ {link}s /data{link}/z"
    monkeypatch.setenv("HOME", "/")
    assert scrubbed("/x / y") == "/x / y"


def test_long_texts_and_nested_values(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "plugh-plover")
    assert scrubbed("x" * 10000 + " plugh-plover") == "x" * 10000 + f" {WITHHELD}"
    assert scrubbed_values({"a": ["plugh-plover", 1, None, {"b": "/root/x"}], "c": True}) == {
        "a": [WITHHELD, 1, None, {"b": "~/x"}],
        "c": True,
    }


def test_the_terminal_shows_paths_as_they_are():
    assert without_secrets("http://me:pa55word@host /home/somebody/x") == f"http://{WITHHELD}@host /home/somebody/x"


def test_names_and_values_of_variables():
    for name in ("HF_TOKEN", "PGPASSWORD", "aws_secret_access_key", "SSH_KEY", "SLURM_JWT"):
        assert is_secret(name, "")
    assert is_secret("X", "0123456789abcdef" * 2)
    assert is_secret("X", "https://me@host/")
    assert not is_secret("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,1")
    assert not is_secret("KEYBOARD", "us")


def test_every_free_text_of_a_record_is_scrubbed(monkeypatch):
    secret = "plugh-plover"
    record = next(one for one in bundle.read(PUBLISHED[:1]) if one.timing is not None and one.timing.devices)
    planted = replace(
        record,
        reason=secret,
        fabric=replace(record.fabric, description=secret, multicast_reason=secret, settings={"a": [secret]}),
        timing=replace(record.timing, devices=tuple({"before": {"x": secret}} for _ in record.timing.devices)),
        environment=RecordedEnvironment(host={"a": {"b": [secret]}}),
        request=RecordedRequest(configuration={"c": secret}),
    )
    wrong = Check("bytes", 2, 0, 0.0, 0, 0.0, True, 1, True, guard_faults=(f"rank 0: {secret}",))
    faulty = replace(planted, status=Status.WRONG, check=wrong, timing=None)
    monkeypatch.setenv("MY_TOKEN", secret)
    for one, times in ((planted, 6 + len(record.timing.devices)), (faulty, 7)):
        assert one.to_json().count(secret) == times
        scrubbed_text = scrubbed_record(one).to_json()
        assert scrubbed_text == one.to_json().replace(secret, WITHHELD)


def test_a_refusal_is_scrubbed(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "plugh-plover")
    refusal = Refusal("multicast", "no plugh-plover", "take plugh-plover")
    found = scrubbed_record(refused(refusal=refusal)).refusal
    assert found == Refusal("multicast", f"no {WITHHELD}", f"take {WITHHELD}")


def test_published_records_have_nothing_to_be_taken_out():
    records = bundle.read(PUBLISHED[:1])[::10]
    assert len(records) > 10
    for one in records:
        assert scrubbed_record(one) == one


def test_a_name_that_is_not_utf_8_can_be_written():
    text = scrubbed("of ä\udcffv")
    assert text == "of ä\\udcffv"
    assert scrubbed(text) == text
    assert scrubbed_values({"records": ["u\udcffv"]}) == {"records": ["u\\udcffv"]}
