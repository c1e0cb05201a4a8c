"""Where data sits: pure decisions about partitions, groups, executors, replicas and checkpoints."""
