"""How a run is shown: on a terminal, in a pipe, to programs, in a notebook."""
