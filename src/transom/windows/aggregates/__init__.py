"""Aggregates: mergeable states that Spark computes, and the results made from them."""
