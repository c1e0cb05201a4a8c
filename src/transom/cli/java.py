"""Is there a Java that Spark can run on?

Asked before Spark starts, because its own answer is a stack trace.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from transom.errors import SessionError

OLDEST = 17
"""The oldest Java that Spark 4.3 runs on."""

_REMEDY = (
    f"Install Java {OLDEST} or newer (for example: apt-get install openjdk-17-jre-headless), "
    "or point JAVA_HOME at an installed one."
)


def parse_java_version(text: str) -> int | None:
    """Return the major version in what `java -version` prints, None when there is none.

    >>> parse_java_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_java_version('java version "1.8.0_292"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def check_java(environment: Mapping[str, str] | None = None) -> int:
    """Return the major version of the Java that Spark will start.

    Args:
        environment: Environment variables; those of this process when None.

    Raises:
        SessionError: There is none, it does not start, or it is too old.
    """
    variables = os.environ if environment is None else environment
    home = variables.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=variables.get("PATH"))
    if program is None:
        raise SessionError("Spark needs Java, and there is none on the PATH.", _REMEDY)
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        blame = "JAVA_HOME is set, but " if home else ""
        raise SessionError(f"Spark needs Java: {blame}{program} does not start ({error}).", _REMEDY) from error
    version = parse_java_version(done.stderr + done.stdout)
    if version is None:
        raise SessionError(f"Spark needs Java, and {program} -version does not say which it is.", _REMEDY)
    if version < OLDEST:
        raise SessionError(f"Spark needs Java {OLDEST} or newer; {program} is version {version}.", _REMEDY)
    return version
