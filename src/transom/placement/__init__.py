"""Placement of data: pure decisions about partitions, groups, executors, replicas and checkpoints."""
