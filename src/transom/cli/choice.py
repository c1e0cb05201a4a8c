"""Where Spark runs and with which settings, as options of the command line say it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from glob import glob
from pathlib import Path

import typer

LOCAL = "local[*]"
"""The master of a job that names none: all cores of this machine."""

_OPTIONS_OF_THEIR_OWN = {"spark.master": "--master", "spark.jars.packages": "--packages"}


@dataclass(frozen=True)
class SparkChoice:
    """A Spark master and settings."""

    master: str | None = None
    """The master's URL; None leaves it to spark-submit, or else is all cores of this machine."""
    conf: dict[str, str] = field(default_factory=dict)
    """Settings of Spark."""
    packages: str | None = None
    """Maven coordinates of jars, separated by commas."""

    def with_kafka(self) -> SparkChoice:
        """Return the same with the packages that read Kafka, unless Spark has the jars or the user brings some."""
        from transom.engine.spark.session import kafka_modules

        if "kafka" in f"{self.packages} {self.conf.get('spark.jars')}" or self._has_kafka():
            return self
        modules = kafka_modules(True)
        packages = modules.pop("spark.jars.packages")
        return replace(
            self, packages=f"{self.packages},{packages}" if self.packages else packages, conf={**modules, **self.conf}
        )

    def _has_kafka(self) -> bool:
        """Tell whether the class path of Spark's driver has the module: among Spark's own jars, or beside them."""
        from pyspark.find_spark_home import _find_spark_home

        given = self.conf.get("spark.driver.extraClassPath", "").split(os.pathsep)
        jars = [*given, str(Path(_find_spark_home(), "jars", "*"))]
        return any(Path(found).name.startswith("spark-sql-kafka") for each in jars for found in glob(each))

    def settings(self, *, submitted: bool) -> dict[str, str]:
        """Return the settings that a session begins with.

        Args:
            submitted: Whether spark-submit started this process, and has settings of its own.
        """
        settings = dict(self.conf)
        master = self.master or (None if submitted else LOCAL)
        if master is not None:
            settings["spark.master"] = master
            if master.startswith("local"):
                # Otherwise the name of the machine must resolve, which it often does not in a container.
                settings.setdefault("spark.driver.host", "127.0.0.1")
        if self.packages:
            settings["spark.jars.packages"] = self.packages
        return settings


def spark_of(master: str | None, conf: Iterable[str] | None, packages: str | None) -> SparkChoice:
    """Return what the options `--master`, `--conf` and `--packages` say.

    Raises:
        typer.BadParameter: No setting of Spark, or one with an option of its own.
    """
    return SparkChoice(master, parse_conf(conf or ()), packages)


def parse_conf(pairs: Iterable[str]) -> dict[str, str]:
    """Return the settings that `--conf KEY=VALUE` names; of a key that is given twice the last one counts.

    Raises:
        typer.BadParameter: No pair of key and value, no setting of Spark, or one with an option of its own.

    >>> parse_conf(["spark.executor.memory=2g", "spark.driver.extraJavaOptions=-Da=b"])
    {'spark.executor.memory': '2g', 'spark.driver.extraJavaOptions': '-Da=b'}
    """
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key.startswith("spark."):
            shown = key if equals else "..."  # what may be a secret is not repeated
            raise typer.BadParameter(
                f"--conf {shown} is no setting of Spark. Write for example --conf spark.executor.memory=2g."
            )
        if key in _OPTIONS_OF_THEIR_OWN:
            raise typer.BadParameter(f"--conf {key} has an option of its own: use {_OPTIONS_OF_THEIR_OWN[key]}.")
        settings[key] = value
    return settings
