"""Runs on Spark Connect, in a process of its own: a process has either a classic session or a remote one."""

import json
import sys

from pyspark.sql import SparkSession

import transom as tm

ROWS = [("a", 1.0, 0), ("b", 2.0, 3_000_000), ("a", 5.0, 11_000_000), ("a", 7.0, 25_000_000), (None, None, 26_000_000)]


def refused(spark: SparkSession, checkpoint: str) -> list[str]:
    messages = []
    for transformation in (lambda df: df.distinct(), lambda df: df.where("rand() < 0.5")):
        app = tm.App(spark, checkpoint)
        rows = app.stream(
            tm.sources.memory("zone string, at timestamp"), event_time="at", watermark=tm.watermark("5 seconds")
        )
        rows.map(transformation).window("10 seconds").agg(n=tm.count()).to(tm.sinks.memory(), name="q")
        try:
            app.explain()
        except tm.DefinitionError as error:
            messages.append(error.message.partition(" ")[0])
    return messages


def main(checkpoint: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    source = tm.sources.memory("zone string, fare double, at timestamp")
    source.add(ROWS)
    app = tm.App(spark, checkpoint)
    rows = app.stream(source, event_time="at", watermark=tm.watermark("5 seconds", max_ahead=None))
    keyed, total, kinds = tm.sinks.memory(), tm.sinks.memory(), tm.sinks.memory()
    known = rows.map(lambda df: df.where("fare > 0"))
    known.group_by("zone").window("10 seconds").agg(n=tm.count(), fare=tm.avg("fare")).to(keyed, name="keyed")
    rows.window("1 minute").agg(n=tm.count(), most=tm.max("fare")).to(total, name="total")
    shaped, some = tm.sinks.memory(), known.group_by("zone").window("10 seconds").agg(n=tm.count(), fare=tm.sum("fare"))
    some.having("fare > 2").select("zone", half="round(fare / 2, 1)", day="date(window_end)").to(shaped, name="shaped")
    windows = tm.calendar("day", zone="Asia/Tokyo", offset="9 hours 10 seconds"), tm.session_window("5 seconds")
    rows.window(*windows).agg(n=tm.count()).to(kinds, name="kinds")
    app.run(once=True, close_all=True)
    result = {
        "keyed": sorted([r["zone"], r["n"], r["fare"]] for r in keyed.to_table("keyed").to_pylist()),
        "kinds": sorted(
            [int(r["window_start"].timestamp()), int(r["window_end"].timestamp()), r["n"]]
            for r in kinds.to_table("kinds").to_pylist()
        ),
        "refused": refused(spark, f"{checkpoint}-other"),
        "shaped": [[r["zone"], r["half"], str(r["day"])] for r in shaped.to_table("shaped").to_pylist()],
        "total": [[r["n"], r["most"]] for r in total.to_table("total").to_pylist()],
    }
    print(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
