"""Settings of the session that change what Spark SQL makes of rows: which the lane without it follows, and which not.

A setting is followed when Spark's plan shows what it changes (the ANSI mode, names, the time zone), and is nothing to
results when it says how jobs run. Any other one, known or not, keeps streams with Spark SQL when it has another value
than by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from transom.engine.spark.session import RUNTIME_SETTINGS
from transom.model.sessions import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "spark.sql."
_FORMATS = frozenset(["avro", "csv", "json", "kafka", "orc", "parquet", "protobuf", "xml"])
"""First words of settings of a format of files: they matter where it is read."""
_IN_PLANS = (
    r"analyzer\..*|ansi\..*|caseSensitive|constraintPropagation\..*|crossJoin\..*|decimalOperations\..*|extensions"
    r"|functionResolution\..*|groupBy.*|lateralColumnAlias\..*|optimizer\..*|orderBy.*|parser\..*|runSQLOnFiles"
    r"|selfJoinAutoResolveAmbiguity|session\.(timeZone|collation\..*)|timestampType|variable\..*"
)
"""What they change is in the plan that is read: types, names, casts, zones, modes, operators."""
_HOW_JOBS_RUN = (
    r"adaptive\..*|addPartitionInBatch\..*|artifact\..*|autoBroadcast.*|broadcast.*|bucketing\..*|cache\..*"
    r"|cartesianProductExec\..*|catalog\..*|catalogImplementation|cbo\..*|classic\..*|cli\..*|codegen\..*"
    r"|columnVector\..*|connect\..*|dataFrameQueryContext\..*|dataframeCache\..*|datetime\.java8API\..*"
    r"|debug.*|default.*"
    r"|error\..*|event\..*|exchange\..*|execution\.(?!arrow\.useLarge).*|extendedExplain.*|expressionTreeChangeLog\..*"
    r"|files\.(max|min|openCost|ignoreCorrupt|ignoreMissing).*|filesourceTable.*|globalTempDatabase|hive\..*"
    r"|inMemory.*|join\..*|leafNodeDefaultParallelism|legacy\.(createHive|parquet|avro|csv|jdbc|hive).*|limit\..*"
    r"|lightweightPlan.*|maven\..*|max.*|metadataCacheTTL.*|nameResolutionLog\..*|objectHashAggregate\..*"
    r"|parquet\.(columnarReaderBatchSize|compression\..*|output.*|write.*|.*InWrite)"
    r"|pipelines\..*|planChange.*|planner\..*|pyspark\..*|python\..*|queryExecutionListeners|redaction\..*|repl\..*"
    r"|requireAllClusterKeys.*|resultQueryStage\..*|scripting\..*|session\.localRelation.*|sessionWindow\..*"
    r"|shuffle.*|sort.*|sources\.(bucketing|commit|default|fileCompression|ignoreDataLocality|output|parallel|v2).*"
    r"|stackTraces.*|statistics\..*|streaming\..*|subexpressionElimination\..*|subquery\..*|thrift.*|ui\..*"
    r"|unionOutputPartitioning|view\..*|warehouse\..*|window.*"
)
_NOTHING = re.compile(f"({_IN_PLANS}|{_HOW_JOBS_RUN})")
_ALIKE = {"legacy.timeParserPolicy": ("corrected", "exception")}
"""Values besides the default that change nothing here: of what is written in the forms that are known."""
_READING = ("mapreduce.input.linerecordreader.line.maxlength", "io.compression.codecs")
"""Settings of Hadoop that leave lines out, or unpack files of other names."""


def setting_in_doubt(
    settings: Iterable[str], formats: Iterable[str], value_of: Callable[[str], tuple[str, str]]
) -> str:
    """Return the first setting that may change results otherwise than is known here, as `name=value`; empty for none.

    Args:
        settings: The names of those that the session has.
        formats: The formats of files that are read.
        value_of: Returns the value of one, and its default.

    >>> setting_in_doubt(["spark.sql.ansi.enabled", "spark.sql.legacy.sizeOfNull"], (), lambda name: ("false", "true"))
    'spark.sql.legacy.sizeOfNull=false'
    >>> setting_in_doubt(["spark.sql.csv.x", "spark.sql.ui.explainMode"], ["json"], lambda name: ("false", "true"))
    ''
    >>> setting_in_doubt(["spark.sql.legacy.csv.x"], ["csv"], lambda name: ("false", "true"))
    'spark.sql.legacy.csv.x=false'
    """
    here = frozenset(formats)
    for name in sorted(settings):
        own = name.removeprefix(_PREFIX)
        form = own.removeprefix("legacy.").partition(".")[0]
        if own == name or form in _FORMATS - here:
            continue
        if _NOTHING.fullmatch(own) and not (own.startswith("legacy.") and form in here):
            continue
        value, default = (each.lower() for each in value_of(name))
        if value not in (default, RUNTIME_SETTINGS.get(name, default).lower(), *_ALIKE.get(own, ())):
            return f"{name}={value_of(name)[0]}"
    return ""


def setting_of(session: SparkSession, formats: Iterable[str]) -> str:
    """Return the first setting of a classic session that is in doubt, as `name=value`; empty for none.

    Args:
        session: The session.
        formats: The formats of files that are read.
    """
    state: Any = session._jsparkSession.sessionState()
    names = str(state.conf().getAllConfs().keySet().mkString(" ")).split()  # one call for all
    known: Any = getattr(java_class(session, "org.apache.spark.sql.internal.SQLConf$"), "MODULE$")

    def value_of(name: str) -> tuple[str, str]:
        entry = known.getConfigEntry(name)
        return str(session.conf.get(name)), "" if entry is None else str(entry.defaultValueString())

    found = setting_in_doubt(names, formats, value_of)
    if found or not formats:
        return found
    hadoop = state.newHadoopConf()
    return next((f"{name}={value}" for name in _READING if (value := hadoop.get(name))), "")
