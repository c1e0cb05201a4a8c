"""Fusion of operators by measured rates (Enorm, section 4.5): heuristics, a search, and the optimum of small graphs."""
