"""What an application will run, as values for people and programs."""
