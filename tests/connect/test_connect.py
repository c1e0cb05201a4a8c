"""The driver path uses the DataFrame API only, so it runs on Spark Connect."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_queries_run_on_spark_connect(tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    job = Path(__file__).with_name("connect_job.py")
    done = subprocess.run(
        [sys.executable, str(job), str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {
        "keyed": [["a", 1, 1.0], ["a", 1, 5.0], ["a", 1, 7.0], ["b", 1, 2.0]],
        "kinds": [[-86390, 10, 2], [0, 8, 2], [10, 86410, 3], [11, 16, 1], [25, 31, 2]],
        "refused": ["map:", "map:"],
        "shaped": [["a", 2.5, "1970-01-01"], ["a", 3.5, "1970-01-01"]],
        "total": [[5, 7.0]],
    }
