"""The loop of an application: cuts, deliveries, the log, recovery."""
