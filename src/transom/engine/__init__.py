"""Effects: runs streams on Spark, keeps the log, hands results to sinks."""
