"""Looking into a checkpoint that another application writes."""

from __future__ import annotations

import json

from checkpoint_helpers import reopen, table

from transom.checkpoint import describe
from transom.checkpoint.log import FORMAT


def test_describe_changes_nothing_and_needs_no_lock(tmp_path):
    path = tmp_path / "checkpoint"
    with reopen(path) as checkpoint:
        checkpoint.write_snapshot({"n": 0}, {"t": table(1, 2)})
        for n in range(20):
            checkpoint.append({"n": n}, sync=False)
        receipt = checkpoint.write_tables("a", {"t": table(1)})
        before = sorted((p, p.stat().st_mtime_ns) for p in path.rglob("*"))
        found = describe(path, last=2)
        assert before == sorted((p, p.stat().st_mtime_ns) for p in path.rglob("*"))
        assert (found["format"], found["epoch"], found["records"]) == (FORMAT, 1, 20)
        assert found["last_records"] == [{"n": 18}, {"n": 19}]
        assert found["snapshot"]["state"] == {"n": 0}
        assert found["snapshot"]["rows"] == {"t": 2}
        assert found["bytes"]["log"] == checkpoint.log_bytes
        assert found["bytes"]["tables"] == receipt["bytes"]
        assert describe(path, last=0)["last_records"] == []
        json.dumps(found)
