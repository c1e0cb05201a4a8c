"""The execution of the jobs of cuts."""
