"""Changes of the set of queries: requests, records of the log, what they make of a stream."""
