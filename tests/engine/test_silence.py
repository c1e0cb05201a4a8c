"""Standard error says what Transom reports once, and what the user's own calls say as ever."""

from __future__ import annotations

import logging

import pytest
from pyspark.errors import PySparkException

import transom as tm
from transom.causes import worker_traceback
from transom.engine.spark import silence
from transom.engine.spark.session import private_session
from transom.sinks.inmemory import memory as memory_sink
from transom.sources.inmemory import memory


@pytest.fixture
def rows():
    rows = memory("k string, v int, t timestamp")
    rows.add([("a", 0, 0)])
    return rows


@pytest.fixture
def written(spark):
    """What PySpark writes with its logger of SQL errors."""
    private_session(spark)
    records: list[logging.LogRecord] = []
    logger = logging.getLogger("SQLQueryContextLogger")
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def test_an_error_of_transom_is_not_written_by_pyspark_too(spark, rows, tmp_path, written):
    app = tm.App(spark, tmp_path / "checkpoint")
    sums = app.stream(rows, event_time="t").window("1 second").agg(n=tm.sum("nothere + 1"))
    sums.to(memory_sink(), name="sums")
    with pytest.raises(tm.DefinitionError, match="nothere") as raised:
        app.run(once=True)
    assert written == []
    assert raised.value.__cause__ is None, "Spark's error says no more than ours"
    assert raised.value.__suppress_context__


def test_the_error_of_a_users_line_stays(spark, rows, tmp_path):
    app = tm.App(spark, tmp_path / "checkpoint")
    mapped = app.stream(rows, event_time="t").map(lambda df: df.where("nothere > 1"))
    mapped.window("1 second").agg(n=tm.count()).to(memory_sink(), name="counts")
    with pytest.raises(tm.DefinitionError, match="nothere") as raised:
        app.run(once=True)
    assert isinstance(raised.value.__cause__, PySparkException)


def test_errors_of_the_users_own_calls_are_written(spark, written):
    with pytest.raises(PySparkException):
        spark.sql("select nothere")
    assert len(written) == 1


def test_tasks_that_fail_are_silent_in_the_block_only(spark):
    """Whatever the level is otherwise: only in the block the loggers have one of their own."""
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j

    def own_levels():
        configuration = log4j.LogManager.getContext(False).getConfiguration()
        found = [configuration.getLoggerConfig(name) for name in silence.LOGGERS_OF_TASKS]
        pairs = zip(found, silence.LOGGERS_OF_TASKS, strict=True)
        return [logger.getLevel().name() for logger, name in pairs if logger.getName() == name]

    assert own_levels() == []
    with silence.silent_tasks(spark):
        with silence.silent_tasks(spark):
            assert own_levels() == ["OFF", "OFF"]
        assert own_levels() == ["OFF", "OFF"], "another run goes on"
    assert own_levels() == []


def test_a_level_that_the_user_chose_stays(spark):
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    name = silence.LOGGERS_OF_TASKS[0]
    log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)
    context = log4j.LogManager.getContext(False)
    try:
        with silence.silent_tasks(spark):
            assert log4j.LogManager.getLogger(name).getLevel().name() == "ERROR"
        assert log4j.LogManager.getLogger(name).getLevel().name() == "ERROR"
    finally:
        context.getConfiguration().removeLogger(name)
        context.updateLoggers()


def test_a_function_that_fails_shows_where_it_does_and_nothing_of_java(spark, rows, tmp_path, caplog):
    from pyspark.sql.functions import udf

    @udf("int")
    def odd(value):
        return 1 // value

    app = tm.App(spark, tmp_path / "checkpoint")
    odds = app.stream(rows, event_time="t").map(lambda frame: frame.withColumn("v", odd("v")))
    odds.window("1 second").agg(n=tm.sum("v")).to(memory_sink(), name="odd")
    with pytest.raises(tm.QueryFailedError, match="ZeroDivisionError"):
        app.run(once=True, close_all=True)
    (said,) = [message for message in caplog.messages if "Traceback" in message]
    assert said.startswith("Query odd failed in a function of yours:")
    assert "return 1 // value" in said
    assert "\tat " not in said


def test_the_traceback_of_a_worker():
    assert worker_traceback(ValueError("odd")) is None
    error = ValueError("x\nTraceback (most recent call last):\n  File f, line 1\nKeyError: 1\n\tat java.lang.Thread")
    assert worker_traceback(error) == "Traceback (most recent call last):\n  File f, line 1\nKeyError: 1"
