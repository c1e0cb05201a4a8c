"""The loop and its policies in virtual time, without Spark."""
