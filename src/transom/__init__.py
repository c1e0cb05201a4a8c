"""Transom: many windowed streaming queries with stated latency limits on Apache Spark, exact, from PySpark."""

from transom import sinks, sources
from transom.api.app import App
from transom.api.gate import gate
from transom.api.running import Running
from transom.collections.checkpointing import Recovery
from transom.collections.collection import Collection
from transom.engine.changes.requests import Change
from transom.engine.loop.progress import Progress
from transom.engine.spark.session import session_builder
from transom.errors import (
    CheckpointError,
    DefinitionError,
    JobChangedError,
    QueryFailedError,
    SessionError,
    SinkError,
    SourceError,
    StoppedError,
    TransomError,
)
from transom.model.watermark import watermark
from transom.model.window import calendar, session_window, sliding, tumbling
from transom.sinks.base import WindowResults
from transom.windows.aggregates.functions import (
    all_ as all,
)
from transom.windows.aggregates.functions import (
    any_ as any,
)
from transom.windows.aggregates.functions import (
    approx_count_distinct,
    avg,
    bool_and,
    bool_or,
    collect_list,
    collect_set,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    median,
    min,
    mode,
    percentile,
    percentile_approx,
    quantile,
    stddev,
    stddev_pop,
    stddev_samp,
    sum,
    top_k,
    udaf,
    var_pop,
    var_samp,
    variance,
)

__version__ = "0.2.0"

__all__ = [
    "App",
    "Change",
    "CheckpointError",
    "Collection",
    "DefinitionError",
    "JobChangedError",
    "Progress",
    "QueryFailedError",
    "Recovery",
    "Running",
    "SessionError",
    "SinkError",
    "SourceError",
    "StoppedError",
    "TransomError",
    "WindowResults",
    "all",
    "any",
    "approx_count_distinct",
    "avg",
    "bool_and",
    "bool_or",
    "calendar",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "first",
    "gate",
    "last",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "percentile",
    "percentile_approx",
    "quantile",
    "session_builder",
    "session_window",
    "sinks",
    "sliding",
    "sources",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "top_k",
    "tumbling",
    "udaf",
    "var_pop",
    "var_samp",
    "variance",
    "watermark",
]
