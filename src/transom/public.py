"""What `import transom as tm` gives: imported when a name of it is first asked for, as it takes a second."""

import transom.sinks as sinks
import transom.sources as sources
from transom.api.app import App
from transom.api.gate import Gate, gate
from transom.api.query import Query
from transom.api.running import Running
from transom.api.streams import Stream
from transom.collections.checkpointing import Recovery
from transom.collections.collection import Collection
from transom.collections.view import View
from transom.engine.changes.requests import Change
from transom.engine.explain.explanation import Explanation
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
from transom.model.formats import avro, csv, json, raw, text
from transom.model.unbounded import unbounded
from transom.model.watermark import watermark
from transom.model.window import Window, calendar, cumulate, session_window, sliding, tumbling
from transom.settings import Settings
from transom.sinks.base import Sink, WindowResults
from transom.sources import tables
from transom.sources.base import Source
from transom.windows.aggregates.base import Aggregate
from transom.windows.aggregates.functions import (
    all_ as all,
)
from transom.windows.aggregates.functions import (
    any_ as any,
)
from transom.windows.aggregates.functions import (
    any_value,
    approx_count_distinct,
    approx_top_k,
    avg,
    bit_and,
    bit_or,
    bit_xor,
    bool_and,
    bool_or,
    collect_list,
    collect_set,
    corr,
    count,
    count_distinct,
    count_if,
    covar_pop,
    covar_samp,
    first,
    histogram_numeric,
    kurtosis,
    last,
    max,
    max_by,
    mean,
    median,
    min,
    min_by,
    mode,
    percentile,
    percentile_approx,
    quantile,
    skewness,
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

__all__ = [
    "Aggregate",
    "App",
    "Change",
    "CheckpointError",
    "Collection",
    "DefinitionError",
    "Explanation",
    "Gate",
    "JobChangedError",
    "Progress",
    "Query",
    "QueryFailedError",
    "Recovery",
    "Running",
    "SessionError",
    "Settings",
    "Sink",
    "SinkError",
    "Source",
    "SourceError",
    "StoppedError",
    "Stream",
    "TransomError",
    "View",
    "Window",
    "WindowResults",
    "all",
    "any",
    "any_value",
    "approx_count_distinct",
    "approx_top_k",
    "avg",
    "avro",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "calendar",
    "collect_list",
    "collect_set",
    "corr",
    "count",
    "count_distinct",
    "count_if",
    "covar_pop",
    "covar_samp",
    "csv",
    "cumulate",
    "first",
    "gate",
    "histogram_numeric",
    "json",
    "kurtosis",
    "last",
    "max",
    "max_by",
    "mean",
    "median",
    "min",
    "min_by",
    "mode",
    "percentile",
    "percentile_approx",
    "quantile",
    "raw",
    "session_builder",
    "session_window",
    "sinks",
    "skewness",
    "sliding",
    "sources",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "tables",
    "text",
    "top_k",
    "tumbling",
    "udaf",
    "unbounded",
    "var_pop",
    "var_samp",
    "variance",
    "watermark",
]
