"""`transom explain`: what a job would do, without reading its data."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from transom.cli.choice import SparkChoice
from transom.cli.consoles import plain_console
from transom.cli.loading import load, reads_kafka
from transom.cli.quiet import spark_session


def explain_job(job: Path, *, spark: SparkChoice, as_json: bool) -> None:
    """Print what a job would do.

    Raises:
        TransomError: The job cannot be loaded.
    """
    build = load(job)
    spark = spark.with_kafka() if reads_kafka(job) else spark
    with spark_session(spark, f"transom explain {job.name}") as session:
        explanation = build(session).explain()
    if as_json:
        print(json.dumps(explanation.to_dict(), indent=2, default=str), file=sys.stdout)
    else:
        plain_console().print(replace(explanation, application=job.name))
