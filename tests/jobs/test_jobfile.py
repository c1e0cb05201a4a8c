from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from transom.cli import loading
from transom.cli.choice import SparkChoice
from transom.errors import DefinitionError, JobFileError
from transom.jobs.building import build_job, check_job
from transom.jobs.jobfile import load_job, parse_job
from transom.jobs.kinds import SinkSpec, kinds
from transom.jobs.windows import make_window
from transom.model.window import window_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

JOB = """
checkpoint = "ckpt"

[source]
files = "trips/*.json"
schema = "zone string, fare double, pickup_at timestamp"
event_time = "pickup_at"
watermark = "30 seconds"
idle_after = "1 minute"
max_ahead = "none"

[[query]]
name = "fares"
group_by = ["zone"]
windows = ["1 minute", {sliding = "1 hour", every = "1 minute"}, {tumbling = "1 day", offset = "4 hours"}]
aggregates = ["count(*) as trips", "avg(fare) as fare"]
where = "fare > 0"
within = "2 seconds"
sink = {parquet = "out/fares"}
"""


def test_a_whole_job():
    job = parse_job(JOB)
    assert job.checkpoint == "ckpt"
    (source,) = job.sources
    assert (source.name, source.kind, source.reads) == ("source", "files", "trips/*.json")
    assert source.options == {"schema": "zone string, fare double, pickup_at timestamp"}
    assert source.watermark == {"delay": "30 seconds", "idle_after": "1 minute", "max_ahead": None}
    (query,) = job.queries
    assert query.source == "source"
    assert query.windows[1] == {"sliding": "1 hour", "every": "1 minute"}
    assert query.within == ("2 seconds", 0.99)
    assert query.sinks == (SinkSpec("parquet", "out/fares", {}),)
    assert query.fill is None


def test_every_kind_of_window():
    written = """windows = ["1 minute", {calendar = "week", zone = "America/New_York", week_start = "sunday",
        offset = "4 hours"}, {sliding = "1 hour", every = "1 minute"}]"""
    query = parse_job(re.sub(r"windows = .*", written.replace("\n", " "), JOB)).queries[0]
    assert [str(window_of(make_window(window))) for window in query.windows] == [
        "1 minute",
        "week from sunday in America/New_York offset 4 hours",
        "1 hour every 1 minute",
    ]


def test_several_sources_need_names_in_the_queries():
    two = JOB.replace("[source]", '[[source]]\nname = "trips"') + (
        '[[source]]\nname = "rides"\nfiles = "rides/*.csv"\nschema = "at timestamp"\nevent_time = "at"\n'
    )
    with pytest.raises(JobFileError, match=r"'source' is missing.*trips, rides"):
        parse_job(two)
    job = parse_job(two.replace('name = "fares"', 'name = "fares"\nsource = "trips"'))
    assert [source.name for source in job.sources] == ["trips", "rides"]


def test_a_generator_as_source():
    job = parse_job(
        '[source]\ngenerator = {zone = "id % 3"}\nrows_per_second = 100\nrows = 1000\n'
        'event_time = "event_time"\n' + JOB[JOB.index("[[query]]") :]
    )
    assert job.sources[0].kind == "generator"
    assert job.sources[0].options == {"rows_per_second": 100, "rows": 1000}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("watermark =", "watermrk =", r"job\.toml: \[source\]: unknown key 'watermrk'.*'watermark'"),
        ("checkpoint =", "chekpoint =", r"job\.toml: unknown key 'chekpoint'.*'checkpoint'"),
        ("group_by", "groupby", r"\[\[query\]\] 'fares': unknown key 'groupby'.*'group_by'"),
        ("every =", "evry =", r"'fares' windows: unknown key 'evry'.*'every'"),
        ('{sliding = "1 hour", every = "1 minute"}', "{}", "is not a window"),
        ("{sliding =", '{calendar = "day", zon = "UTC"}, {sliding =', r"'fares' windows: unknown key 'zon'.*'zone'"),
        ('"1 minute", {', "60, {", "60 is not a window"),
        (', every = "1 minute"', "", "'fares' windows: the key 'every' is missing"),
        ("{tumbling =", '{session = "1 day", tumbling =', "is tumbling and session"),
        ("{sliding =", '{session = "1 day", at_mst = "2 days"}, {sliding =', r"unknown key 'at_mst'.*'at_most'"),
        ("{sliding =", '{session = "1 day", at_most = 2}, {sliding =', "'fares' windows: at_most = 2 is not a text"),
        ("{sliding =", '{session = "1 day", end_when = "x"}, {sliding =', r"unknown key 'end_when'.*'ends_when'"),
        ("{sliding =", '{session = "1 day", ends_when = true}, {sliding =', "ends_when = True is not a text"),
        ('every = "1 minute"', "every = 60", "'fares' windows: every = 60 is not a text"),
        ("{parquet =", "{parqet =", r"'fares' sink: unknown key 'parqet'.*'parquet'"),
        ('{parquet = "out/fares"}', '{parquet = "a", json = "b"}', "sink: one kind"),
        ('["zone"]', '"zone"', "group_by = 'zone' is not a list"),
        ('within = "2 seconds"', "quantile = 0.9", "quantile is given without within"),
        ('within = "2 seconds"', 'on_overload = "shed"', "on_overload is given without within"),
        ('within = "2 seconds"', 'within = "2 seconds"\nkeep = 0.5', "keep is 0.5, but nothing is left out"),
        ('within = "2 seconds"', 'within = "2 seconds"\non_overload = "shed"\nkeep = 1.5', "keep is 1.5"),
        ('within = "2 seconds"', 'within = "2 seconds"\non_overload = "drop"', "on_overload is 'drop'"),
        ('event_time = "pickup_at"', "", "'event_time' is missing"),
        ("schema =", "format =", "'schema' is missing"),
        ('files = "trips/*.json"', "", "it needs one of files, text"),
        ('files = "trips/*.json"', 'files = "x"\nrows = 3', "'rows' does not go with files"),
        ('name = "fares"', 'name = "fares"\nsource = "taxi"', "no source 'taxi'.*sources are: source"),
        ("[[query]]", "[[qery]]", "unknown key 'qery'.*'query'"),
        ('name = "fares"', "name = 3", "name = 3 is not a text"),
        ('name = "fares"', 'name = "fares"\nfrom = "fares"', "from: there is no query 'fares' above"),
        ('within = "2 seconds"', "own_stream = 1", "own_stream = 1 is not true or false"),
        ('sink = {parquet = "out/fares"}', "", "the query 'fares' has no sink"),
        ('{parquet = "out/fares"}', '{parquet = ""}', "'fares' sink: parquet is empty"),
        ('{parquet = "out/fares"}', '{parquet = "a"}\nsinks = []', "both sink and sinks"),
        ('sink = {parquet = "out/fares"}', 'sinks = ["out/fares"]', "the sink 'out/fares' is not a table"),
        ('sink = {parquet = "out/fares"}', 'sink = "out/fares"', r"is not a table\. Write for example sink = {parquet"),
        ('sink = {parquet = "out/fares"}', 'sinks = [{parqet = "a"}]', r"'fares' sink: unknown key 'parqet'"),
        ('where = "fare > 0"', 'where = ""', "where is empty"),
        ('["zone"]', '"zone"', r'Write group_by = \["zone"\]'),
        ("checkpoint = ", "checkpoint : ", "not valid TOML"),
    ],
)
def test_mistakes_name_the_key_and_the_remedy(old: str, new: str, message: str):
    assert old in JOB
    with pytest.raises(JobFileError, match=message):
        parse_job(JOB.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count(*) as trips", "count(*) as fare", r"\[\[query\]\] 'fares': two aggregates are named 'fare'"),
        ("count(*)", "cnt(*)", r"job\.toml: \[\[query\]\] 'fares': aggregate: 'cnt' is not known.*'count'"),
        ('"1 minute", {', '"1 minut", {', r"\[\[query\]\] 'fares': window length: '1 minut'"),
        ('watermark = "30 seconds"', 'watermark = "soon"', r"\[source\] 'source': .*'soon' is not a duration"),
        ("[source]", '[settings]\npolicy = "klinc"\n[source]', "policy: there is no 'klinc'.*'klink'"),
        ("[source]", '[settings]\nlane = "fast"\n[source]', r"job\.toml: \[settings\]: settings: lane is 'fast'\."),
        ("[source]", "[settings]\nslots = 0\n[source]", r"job\.toml: \[settings\]: settings: slots is 0\."),
        ("[source]", "[settings]\npoll = 0.5\n[source]", r"job\.toml: \[settings\]: settings: poll is 0\.5\."),
    ],
)
def test_what_cannot_work_is_found_in_the_file(old: str, new: str, message: str):
    session = SimpleNamespace(createDataFrame=None)  # nothing is asked of it before the application runs
    assert old in JOB
    with pytest.raises(DefinitionError, match=message):
        build_job(parse_job(JOB.replace(old, new, 1)), session)


CHAINED = """
[[query]]
name = "days"
from = "fares"
where = "trips > 1"
windows = ["1 day"]
aggregates = ["sum(trips) as trips"]
sink = {parquet = "out/days"}
"""


def test_a_query_over_the_results_of_another():
    job = parse_job(JOB.replace('sink = {parquet = "out/fares"}', "") + CHAINED)
    assert [(query.source, query.parent, query.sinks) for query in job.queries] == [
        ("source", None, ()),
        (None, "fares", (SinkSpec("parquet", "out/days", {}),)),
    ]
    with pytest.raises(JobFileError, match="'days': it has both source and from"):
        parse_job(JOB + CHAINED + 'source = "source"')
    with pytest.raises(JobFileError, match="'days': from: there is no query 'fare' above"):
        parse_job(JOB + CHAINED.replace('"fares"', '"fare"'))


def test_a_chained_job_is_built(spark, tmp_path):
    text = JOB.replace('sink = {parquet = "out/fares"}', "").replace("trips/*.json", f"{tmp_path}/*.json") + CHAINED
    text += '\n[settings]\nplan = "auto"\nmax_executors = 8\n'
    plan = build_job(parse_job(text), spark, str(tmp_path / "checkpoint")).explain().to_dict()
    assert [(stream["name"], stream["queries"][0]["name"]) for stream in plan["streams"]] == [
        ("source", "fares"),
        ("fares.results", "days"),
    ]
    assert plan["planning"] == {"plan": "auto", "max_executors": 8}


JOINED = """
checkpoint = "ckpt"

[[source]]
name = "clicks"
generator = {k = "id % 3", at = "event_time"}
rows_per_second = 10
event_time = "at"

[[source]]
name = "views"
generator = {k = "id % 3", seen = "event_time"}
rows_per_second = 10
event_time = "seen"

[[join]]
name = "pairs"
left = {source = "clicks", where = "k > 0", select = ["k", "at"]}
right = "views"
on = ["k"]
window = {sliding = "10 seconds", every = "5 seconds"}
how = "left"
"""


def counting(source: str, key: str) -> str:
    """Return a query that counts the rows of each key."""
    return f"""
[[query]]
name = "of {source}"
source = "{source}"
group_by = ["{key}"]
windows = ["1 minute"]
aggregates = ["count(*) as rows"]
sink = {{parquet = "out/{source}"}}
"""


JOINED += counting("pairs", "k")
LOOKUP = """
[[lookup]]
name = "named"
source = {source = "pairs", where = "k > 1"}
table = {sql = "SELECT 1L AS k, 'one' AS word"}
on = ["k"]
how = "left"
refresh = "10 minutes"
""" + counting("named", "word")
ONCE = """
[[union]]
name = "both"
sources = [{source = "clicks", select = ["k", "at"]}, {source = "views", select = ["k", "seen AS at", "_event_micros"]}]

[[deduplicate]]
name = "once"
source = "both"
keys = ["k"]
within = "1 hour"
""" + counting("once", "k")


def planned(text: str, spark, tmp_path: Path) -> dict:
    return build_job(parse_job(text), spark, str(tmp_path / "checkpoint")).explain().to_dict()


def test_rows_made_of_rows(spark, tmp_path):
    plan = planned(JOINED + LOOKUP + ONCE, spark, tmp_path)
    assert {stream["name"]: sorted(query["name"] for query in stream["queries"]) for stream in plan["streams"]} == {
        "clicks": ["both.1", "pairs.left"],
        "views": ["both.2", "pairs.right"],
        "pairs": ["of named", "of pairs"],
        "both": ["once.rows"],
        "once": ["of once", "once.stayed"],
    }
    sources = {stream["name"]: stream["source"] for stream in plan["streams"]}
    assert sources["pairs"] == "left join of clicks and views on k within 10 seconds every 5 seconds"
    assert sources["both"] == "union of clicks and views"
    assert sources["once"] == "first row of each k of both within 1 hour"
    steps = [step for operator in plan["graph"]["operators"] for step in operator.get("functions", ())]
    assert "lookup in named (SQL SELECT 1L AS k, 'one' AS word; left on k, read every 10 minutes)" in steps


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('right = "views"', 'right = "view"', "'pairs' right: there is no source 'view'.*clicks, views"),
        ('right = "views"', "", "'right' is missing"),
        ('where = "k > 0"', 'wehre = "k"', "'pairs' left: unknown key 'wehre'.*'where'"),
        ("every =", "evry =", "'pairs' window: unknown key 'evry'.*'every'"),
        ('on = ["k"]\nwindow', 'on = "k"\nwindow', "on = 'k' is not a list"),
        ('name = "named"', 'name = "clicks"', "'clicks': there is another source of that name"),
        ('source = "pairs"', 'source = "pair"', "no source 'pair'.*clicks, views, pairs"),
        ('source = {source = "pairs"', 'source = {source = "paris"', "'named' source: there is no source 'paris'"),
        ("table = {sql = ", "table = {csv = ", "'named' table: unknown key 'csv'"),
        ("table = {sql = ", 'table = {parquet = "zones", sql = ', "'named' table: it needs one table"),
        ("table = {sql = \"SELECT 1L AS k, 'one' AS word\"}", "", "the key 'table' is missing"),
        ('how = "left"\nrefresh', 'how = "right"\nrefresh', "[[lookup]] 'named': lookup: how='right' cannot be had"),
        ('refresh = "10 minutes"', 'refresh = "often"', "[[lookup]] 'named': lookup refresh.*often"),
        ('{source = "pairs", where = "k > 1"}', '"named"', "'named' read each other in a circle"),
        (
            'sink = {parquet = "out/named"}',
            'own_stream = true\nsink = {parquet = "o"}',
            "own_stream: 'named' is no sou",
        ),
        (
            ', {source = "views", select = ["k", "seen AS at", "_event_micros"]}',
            "",
            "[[union]] 'both': sources: a union has two or more",
        ),
        (
            '{source = "views", select = ["k", "seen AS at", "_event_micros"]}',
            "3",
            "'both': sources: 3 is neither a name nor a table",
        ),
        ('source = "both"', 'source = "bth"', "[[deduplicate]] 'once' source: there is no source 'bth'"),
        ('keys = ["k"]', "keys = []", "'once': keys = [] is not a list of texts"),
        ('within = "1 hour"', 'within = "soon"', "[[deduplicate]] 'once': deduplicate within: 'soon'"),
        ('within = "1 hour"', "", "'once': the key 'within' is missing"),
    ],
)
def test_mistakes_in_rows_made_of_rows(old: str, new: str, message: str):
    text = JOINED + LOOKUP + ONCE
    assert old in text
    with pytest.raises(JobFileError, match=message.replace("[", r"\[").replace("]", r"\]")):
        check_job(parse_job(text.replace(old, new, 1)))


def test_two_queries_of_one_name():
    with pytest.raises(JobFileError, match="two queries are named 'fares'"):
        parse_job(JOB + JOB[JOB.index("[[query]]") :])


def test_a_missing_file(tmp_path):
    with pytest.raises(JobFileError, match="cannot be read"):
        load_job(tmp_path / "none.toml")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_examples_are_jobs(path: Path):
    assert load_job(path).queries


KAFKA_JOB = """
checkpoint = "ckpt"
[source]
kafka = ["a:9092", "b:9092"]
topics = ["orders"]
format = {json = "zone string, at timestamp"}
starting = {orders = {0 = 17}}
on_data_loss = "skip"
options = {"sasl.password" = {env = "TRANSOM_TEST_PASSWORD"}}
event_time = "at"
[[query]]
name = "q"
windows = ["1 minute"]
aggregates = ["count(*) as n"]
sink = {kafka = "a:9092", topic = "results", key = ["n"]}
"""


def test_a_job_over_kafka(tmp_path, monkeypatch):
    path = tmp_path / "job.toml"
    path.write_text(KAFKA_JOB)
    monkeypatch.delenv("TRANSOM_TEST_PASSWORD", raising=False)
    with pytest.raises(DefinitionError, match="the variable TRANSOM_TEST_PASSWORD is not set"):
        loading.load(path)
    monkeypatch.setenv("TRANSOM_TEST_PASSWORD", "s3cret")
    loading.load(path)
    (source,) = load_job(path).sources
    made = kinds("sources")["kafka"].make(source.reads, **source.options)
    assert made.describe() == "Kafka orders at a:9092,b:9092, json"
    assert load_job(path).queries[0].sinks[0].make().describe() == "Kafka topic results at a:9092"
    # Spark gets the module that reads Kafka, unless the user brings one.
    assert loading.reads_kafka(path)
    assert "spark-sql-kafka-0-10_2.13:4.2.0" in SparkChoice(packages="a:b:1").with_kafka().packages
    own = SparkChoice(conf={"spark.jars": "/jars/spark-sql-kafka.jar"})
    assert own.with_kafka() == own
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar").touch()
    own = SparkChoice(conf={"spark.driver.extraClassPath": f"/nowhere/*:{tmp_path}/*"})
    assert own.with_kafka() == own
    assert replace(own, conf={"spark.driver.extraClassPath": "/nowhere/*"}).with_kafka().packages


def test_each_known_key_is_named_once():
    with pytest.raises(JobFileError) as caught:
        parse_job(JOB.replace("files =", "zzzz =", 1))
    known = str(caught.value).partition("Known keys: ")[2].rstrip(".").split(", ")
    assert len(known) == len(set(known)) > 10
