import pytest
from tests.widearea.worlds import flow, problem_of

from transom.errors import DefinitionError
from transom.widearea.topology import Topology
from transom.widearea.trees import Tree, count_trees, trees


def test_two_sources_at_seven_sites_have_27_trees():
    found = list(trees("AB", "C", "ABCDEFG"))
    assert len(found) == len(set(found)) == 27 <= count_trees(2, 7)


def test_a_relay_sends_its_own_with_what_it_merges():
    given = flow("f", {"A": 100.0, "B": 200.0, "C": 300.0}, "D", scale=1.0, fixed=7.0, tick=1.0)
    problem = problem_of(Topology(tuple("ABCD"), {}, tick=1.0), (given,))
    load = problem.load(problem.column(0, Tree("D", (("A", "B"), ("B", "D"), ("C", "D"))), 1))
    links = [tuple("ABCD"[site] for site in divmod(link, 4)) for link in load.links]
    assert dict(zip(links, load.rates, strict=True)) == {("A", "B"): 107.0, ("B", "D"): 307.0, ("C", "D"): 307.0}


@pytest.mark.parametrize(
    "parents",
    [(("A", "B"), ("B", "C")), (("A", "B"), ("B", "A")), (("A", "A"),), (("D", "A"),), (("A", "D"), ("A", "C"))],
)
def test_no_tree_has_three_hops_circles_or_two_parents(parents):
    with pytest.raises(DefinitionError):
        Tree("D", parents)
