"""The plan of an application, as values for people and programs."""
