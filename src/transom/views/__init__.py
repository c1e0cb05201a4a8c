"""Views of a run: on a terminal, in a pipe, to programs, in a notebook."""
