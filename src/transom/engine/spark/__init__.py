"""The only place that executes Spark."""
