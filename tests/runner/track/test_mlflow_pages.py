"""Addresses of MLflow's pages, and filters for commands whatever they are called."""

import sqlite3

import pytest

from runner.track.dashboard import newest_place, told_at
from runner.track.pages import address_of, command_filter, digest_of, page_of_view, view_key


@pytest.mark.parametrize("name", ["it's", 'say "so"', "a`b", "100%", "x\\", "<b>", "é"])
def test_a_name_that_needs_quoting_is_found_by_its_digest(name):
    assert command_filter(name) == f"tags.`symlab.command_digest` = '{digest_of(name)}'"


def test_a_plain_name_is_found_by_itself():
    assert command_filter("20260101T000000Z-x-1") == "tags.`symlab.command` = '20260101T000000Z-x-1'"


def test_an_address_has_no_password():
    assert address_of("http://me:pa55@host:5000/base/", "#/x") == "http://host:5000/base/#/x"
    assert told_at("http://me:pa55@host:5000", "#/x") == "http://host:5000/#/x"


def test_a_views_address_names_experiment_and_view():
    assert page_of_view("3", "key") == (
        "#/experiments/3/runs?viewStateShareKey=key&compareRunsMode=CHART&workflowType=machine_learning"
    )


def test_a_database_that_is_not_mlflows_has_no_newest_charts(tmp_path):
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("create table experiments (name text)")
    connection.close()
    assert newest_place(tmp_path / "mlflow.db") == ""


def test_the_newest_command_with_charts_is_opened(tmp_path):
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("create table runs (run_uuid, experiment_id, start_time, end_time, lifecycle_stage)")
        connection.execute("create table tags (run_uuid, key, value)")
        connection.execute("create table experiment_tags (key, value)")
        for number, name in enumerate(("old", "new", "it's removed", "without charts")):
            stage = "deleted" if "removed" in name else "active"
            connection.execute("insert into runs values (?, 7, ?, ?, ?)", (name, number, number, stage))
            tags = [(name, "symlab.series", ""), (name, "symlab.command", name)]
            connection.executemany("insert into tags values (?, ?, ?)", tags)
            if "without" not in name:
                tag = f"mlflow.sharedViewState.{view_key(name)}"
                connection.execute("insert into experiment_tags values (?, '')", (tag,))
    connection.close()
    assert newest_place(tmp_path / "mlflow.db") == page_of_view("7", view_key("new"))
