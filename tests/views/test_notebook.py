"""A notebook without one: IPython's shell and display are played."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from test_dashboard import progress

import transom as tm
from transom.sinks.inmemory import memory as memory_sink
from transom.sources.inmemory import memory
from transom.views.notebook import NotebookView, notebook_display


class Output:
    """What a notebook shows: outputs, each with the pictures that it showed one after the other."""

    def __init__(self) -> None:
        self.outputs: list[list[object]] = []

    def display(self, picture, display_id):
        assert display_id is True
        self.outputs.append([picture])
        return SimpleNamespace(update=self.outputs[-1].append)


@pytest.fixture
def notebook(monkeypatch):
    output = Output()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object())))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=output.display))
    return output


def test_a_table_stays_in_its_place(notebook):
    view = NotebookView(notebook_display())
    for at in (0, 0.1, 1, 1.2, 60):
        view.update(progress(at))
    view.finish(progress(61, ("the last note",)))
    ((first, *others),) = notebook.outputs
    assert len(others) == 3
    assert "interrupt the kernel to stop" in repr(first)
    assert "the last note" in repr(others[-1])
    assert "ended" in repr(others[-1])
    html = first._repr_html_()
    assert html.startswith("<pre style=")
    assert "3,456" in html


def test_a_note_is_shown_at_once(notebook):
    view = NotebookView(notebook_display())
    view.update(progress(0))
    view.update(progress(0.1, ("look here",)))
    assert "look here" in repr(notebook.outputs[0][1])


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_elsewhere_there_is_no_display(monkeypatch, shell):
    assert notebook_display() is None, "without IPython"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert notebook_display() is None, "IPython in a terminal"


def test_a_run_shows_itself_unless_somebody_else_does(spark, tmp_path, notebook, capsys):
    def app(name):
        made, rows = tm.App(spark, tmp_path / name), memory("k string, t timestamp")
        rows.add([("a", 0)])
        made.stream(rows, event_time="t").window("1 second").agg(n=tm.count()).to(memory_sink(), name="counts")
        return made

    app("one").run(once=True, close_all=True)
    (pictures,) = notebook.outputs
    assert "counts" in repr(pictures[-1])
    assert "ended" in repr(pictures[-1])
    seen = []
    app("two").run(once=True, on_progress=seen.append)
    running = app("three").start(once=True)
    running.wait()
    assert len(notebook.outputs) == 1
    assert "counts" in running._repr_html_()
    assert capsys.readouterr() == ("", "")
