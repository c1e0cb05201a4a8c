"""A demonstration on real data: the flights that left New York in 2013, as a stream."""
