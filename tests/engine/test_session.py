"""The session that `session_builder` makes: who can reach its ports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.engine.spark import pythondaemon
from transom.engine.spark.partitions import SHUFFLE_PARTITIONS, with_copies, with_partitions
from transom.engine.spark.pythondaemon import DAEMON, daemon_settings
from transom.engine.spark.session import OFTEN, cancel_jobs, private_session
from transom.model.sessions import java_class

PROGRAM = """
import sys, psutil, transom as tm
spark = tm.session_builder().master("local[1]").config("spark.ui.enabled", sys.argv[1]).getOrCreate()
java = next(child for child in psutil.Process().children() if "java" in child.name())
print(sorted({each.laddr.ip.removeprefix("::ffff:") for each in java.net_connections() if each.status == "LISTEN"}))
print(spark.sparkContext.uiWebUrl)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("pages", ["true", "false"])
def test_a_local_master_listens_on_loopback_only(pages):
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    command = [sys.executable, "-c", PROGRAM, pages]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, env=environment)
    listening, url = done.stdout.splitlines()
    assert listening == "['127.0.0.1']"
    assert url == "None" if pages == "false" else url.startswith("http://localhost:")


@pytest.fixture
def started(monkeypatch):
    """Notes what sessions would start with."""
    found = []

    def start(builder):
        found.append((os.environ.get("SPARK_LOCAL_IP"), builder._options["spark.ui.enabled"]))

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    return found


@pytest.mark.parametrize(
    ("master", "given", "address"),
    [
        ("local[2]", None, "127.0.0.1"),
        ("local-cluster[2,1,1024]", None, "127.0.0.1"),
        ("local[2]", "192.0.2.7", "192.0.2.7"),
        ("spark://host:7077", None, None),
        ("spark://host:7077", "192.0.2.7", "192.0.2.7"),
    ],
)
@pytest.mark.parametrize("pages", [None, "true"])
def test_where_a_session_listens(started, monkeypatch, caplog, master, given, address, pages):
    if given:
        monkeypatch.setenv("SPARK_LOCAL_IP", given)
    builder = tm.session_builder().master(master)
    (builder if pages is None else builder.config("spark.ui.enabled", pages)).getOrCreate()
    assert started == [(address, pages or "false")]
    assert os.environ.get("SPARK_LOCAL_IP") == given
    assert ("all interfaces" in caplog.text) == (pages == "true" and address is None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_worker_to_which_spark_listens_no_longer_ends_without_a_word(monkeypatch):
    """It had a stack trace on the terminal when sessions were stopped on busy machines."""
    from pyspark import daemon

    monkeypatch.setattr("sys.argv", ["daemon", "tests.engine.answering"])
    monkeypatch.setenv("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE", "1")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for worker, ends in ((daemon.worker, None), (pythondaemon.silent(daemon.worker), 1)):
        mine, its = socket.socketpair()
        mine.close()
        with its, nullcontext() if ends else pytest.raises(BrokenPipeError):
            assert worker(its, True) == ends


def test_which_workers_import_pyspark_as_it_is_installed(monkeypatch, tmp_path):
    """Those that are sure to find Transom: a daemon that is not found is the end of every Python function."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    local, ours = {"spark.master": "local[2]"}, {DAEMON: pythondaemon.__name__}
    assert daemon_settings(local) == daemon_settings({**local, "spark.pyspark.python": sys.executable}) == ours
    for other in ({"spark.master": "spark://host:7077"}, {DAEMON: "mine", **local}, {}):
        assert daemon_settings(other) == {}
    assert daemon_settings({**local, "spark.pyspark.python": "/usr/bin/python"}) == {}
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/elsewhere"]))
    monkeypatch.setattr(pythondaemon.site, "getsitepackages", lambda: [str(tmp_path)])
    assert daemon_settings(local) == {}
    root = os.path.dirname(os.path.dirname(tm.__file__))
    (tmp_path / "linked.pth").write_text(f"import os\n{root}\n")
    assert daemon_settings(local) == ours
    (tmp_path / "linked.pth").unlink()
    monkeypatch.setenv("PYTHONPATH", root)
    assert daemon_settings(local) == ours
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python")
    assert daemon_settings(local) == {}


def test_python_workers_import_pyspark_as_it_is_installed(spark):
    import py4j
    import pyspark

    found = spark.sparkContext.parallelize([0], 1).map(lambda _: (pyspark.__file__, py4j.__file__)).collect()
    assert found == [(pyspark.__file__, py4j.__file__)]


def test_pyspark_asks_once_for_the_classes_it_uses_with_every_expression(spark):
    private_session(spark)
    known = vars(spark.sparkContext._jvm)
    for name, methods in OFTEN.items():
        assert vars(known[name]).keys() >= {*methods}
    assert java_class(spark, "java.lang.System") is java_class(spark, "java.lang.System")


def test_the_lines_that_made_expressions_are_noted_for_those_who_ask_only():
    options = tm.session_builder()._options
    assert options["spark.python.sql.dataFrameDebugging.enabled"] == "false"


def test_files_that_spark_writes_have_the_permissions_of_the_process():
    before = os.umask(0o027)
    try:
        assert tm.session_builder()._options["spark.hadoop.fs.permissions.umask-mode"] == "027"
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_files_whose_number_of_tasks_is_set_are_divided_evenly(spark: SparkSession, tmp_path: Path) -> None:
    """Each is a piece of its own, or several; Spark alone puts as many together as fit below a bound."""
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text("line\n" * 10)
    session = private_session(spark)
    divided = with_partitions(session, None, small=True).read.text(f"{tmp_path}")
    assert divided.rdd.getNumPartitions() == 9 > session.read.text(f"{tmp_path}").rdd.getNumPartitions()
    for tasks in (2, 4):
        rows = divided.coalesce(tasks).groupBy(F.spark_partition_id()).count().collect()
        assert sorted(count for _, count in rows) == {2: [40, 50], 4: [20, 20, 20, 30]}[tasks]


def test_a_copy_with_another_number_of_tasks_is_made_once_and_its_jobs_are_cancelled_with_the_others(spark):
    session = private_session(spark)
    before = session.conf.get(SHUFFLE_PARTITIONS)
    copy = with_partitions(session, 7)
    assert with_partitions(session, 7) is copy
    assert with_partitions(session, None) is session
    small = with_partitions(session, None, small=True)
    assert with_copies(session) == [session, copy, small]
    assert small.conf.get(SHUFFLE_PARTITIONS) == before
    assert (session.conf.get(SHUFFLE_PARTITIONS), copy.conf.get(SHUFFLE_PARTITIONS)) == (before, "7")
    rows = copy.range(1_000).selectExpr("id % 50 as k").groupBy("k").count()
    assert rows.rdd.getNumPartitions() == 7
    ended, failed = threading.Event(), []

    def hang():
        try:
            copy.range(2).selectExpr("reflect('java.lang.Thread', 'sleep', 600000 + 0 * id)").collect()
        except Exception as error:
            failed.append(error)
        ended.set()

    thread = threading.Thread(target=hang)
    thread.start()
    while not ended.is_set():
        done = threading.Event()
        cancel_jobs(session, done)
        done.set()
        ended.wait(0.1)
    thread.join()
    assert "cancel" in str(failed[0]).lower()
