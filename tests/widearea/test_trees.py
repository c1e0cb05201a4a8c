import pytest

from transom.errors import DefinitionError
from transom.widearea.trees import Tree, count_trees, trees


def test_two_sources_at_seven_sites_have_27_trees():
    found = list(trees("AB", "C", "ABCDEFG"))
    assert len(found) == len(set(found)) == 27 <= count_trees(2, 7)


def test_a_relay_sends_its_own_with_what_it_merges():
    tree = Tree("D", (("A", "B"), ("B", "D"), ("C", "D")))
    assert dict(tree.hops) == {
        ("A", "B"): frozenset("A"),
        ("B", "D"): frozenset("AB"),
        ("C", "D"): frozenset("C"),
    }


@pytest.mark.parametrize(
    "parents",
    [(("A", "B"), ("B", "C")), (("A", "B"), ("B", "A")), (("A", "A"),), (("D", "A"),), (("A", "D"), ("A", "C"))],
)
def test_no_tree_has_three_hops_circles_or_two_parents(parents):
    with pytest.raises(DefinitionError):
        Tree("D", parents)
