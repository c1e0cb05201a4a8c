"""The interface: applications, streams and queries as users write them, and turns for queries that Spark drives."""
