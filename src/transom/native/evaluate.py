"""Runs programs on batches of rows: gives the rows that Spark would give, or says that Spark has to judge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transom.native.computing import Computation, DoubtError, NotKnownError, Rows
from transom.native.functions import FUNCTIONS
from transom.native.lookups import KeyedRows
from transom.native.program import ANTI, LEFT, SEMI, Filter, Judge, Lookup, Program, Project, names_in
from transom.native.terms import Term


@dataclass(frozen=True)
class Runner:
    """Runs a program on one batch after the other.

    Args:
        program: What is done with rows.
        tables: Those that it looks rows up in, by name.
        awaited: Others, which are given before it runs: whose rows they are made of, and what makes them.
    """

    program: Program
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    awaited: Mapping[str, tuple[str, Runner]] = field(default_factory=dict)
    _keyed: dict[Lookup, KeyedRows] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for step in self.program.steps:
            if isinstance(step, Lookup) and step.table in self.tables:
                self._keyed[step] = KeyedRows.of(self.tables[step.table], [name for _, name in step.on], step.null_safe)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | Judge:
        """Return the rows that the program makes of those of a batch, or why Spark has to make them.

        Args:
            batch: Has the columns that it takes.
        """
        rows = _Rows({name: batch.column(name) for name in self.program.columns.names}, batch.num_rows)
        try:
            for step, needed in zip(self.program.steps, self.program.needed[1:], strict=True):
                rows = self._after(step, rows, needed)
        except (pa.ArrowException, DoubtError) as error:
            return Judge(str(error))
        schema = self.program.schema
        return pa.RecordBatch.from_arrays([rows.columns[name] for name in schema.names], schema=schema)

    def given(self, rows: Mapping[str, pa.Table]) -> Runner | Judge:
        """Return the same with the tables that it awaits, or why Spark has to make them.

        Args:
            rows: Those that they are made of.
        """
        tables = dict(self.tables)
        for name, (of, runner) in self.awaited.items():
            columns = rows[of].select(runner.program.columns.names).combine_chunks()
            batches = columns.to_batches() or [pa.RecordBatch.from_pylist([], columns.schema)]
            made = runner(batches[0])
            if isinstance(made, Judge):
                return made
            tables[name] = pa.Table.from_batches([made])
        return Runner(self.program, tables)

    def _after(self, step: Filter | Project | Lookup, rows: _Rows, needed: Collection[str]) -> _Rows:
        """Return the rows after a step, with the columns that are needed then."""
        if isinstance(step, Project):
            wanted = {name: term for name, term in step.columns if name in needed}
            return _Rows(dict(zip(wanted, rows.values(wanted.values()), strict=True)), rows.count)
        if isinstance(step, Filter):
            (kept,) = rows.values([step.condition])
            return rows.filtered(kept, needed)
        return self._looked_up(step, rows, needed)

    def _looked_up(self, step: Lookup, rows: _Rows, needed: Collection[str]) -> _Rows:
        keyed = self._keyed[step]
        found = keyed.find(rows.values(term for term, _ in step.on))
        if step.condition is not None:
            return self._matching(step, step.condition, rows, found, needed)
        if step.kind in (SEMI, ANTI):
            return rows.filtered(found.is_valid() if step.kind == SEMI else found.is_null(), needed)
        return self._joined(step, rows, needed, *keyed.pairs(found, step.kind == LEFT))

    def _matching(self, step: Lookup, condition: Term, rows: _Rows, found: pa.Array, needed: Collection[str]) -> _Rows:
        """Return the rows after a lookup with a condition, of which the keys are found."""
        ours, theirs = self._keyed[step].pairs(found, False)
        ours = pa.array(np.arange(rows.count)) if ours is None else ours
        ours, theirs = ours.cast(pa.int64()), theirs.cast(pa.int64())
        asked = names_in(condition)
        (kept,) = self._joined(step, rows, asked, ours, theirs).values([condition])
        ours, theirs = ours.filter(kept), theirs.filter(kept)
        has = np.zeros(rows.count, np.bool_)
        has[ours.to_numpy()] = True
        if not step.adds:
            return rows.filtered(pa.array(has if step.kind == SEMI else ~has), needed)
        if step.kind == LEFT:
            without = pa.array(np.flatnonzero(~has))
            ours = pa.concat_arrays([ours, without])
            order = pa.array(np.argsort(ours.to_numpy(), kind="stable"))
            theirs = pa.concat_arrays([theirs, pa.nulls(len(without), pa.int64())])
            ours, theirs = ours.take(order), theirs.take(order)
        return self._joined(step, rows, needed, ours, theirs)

    def _joined(
        self, step: Lookup, rows: _Rows, needed: Collection[str], ours: pa.Array | None, theirs: pa.Array
    ) -> _Rows:
        """Return pairs of rows and rows of the table, with the columns that are needed."""
        keyed = self._keyed[step]
        added = {name: (source, kind) for name, source, kind in step.columns if name in needed}
        taken = {name: rows.columns[name] for name in needed if name not in added}
        if ours is not None:
            taken = {name: column.take(ours) for name, column in taken.items()}
        for name, (source, kind) in added.items():
            taken[name] = keyed.column(source).take(theirs).cast(kind)
        return _Rows(taken, len(theirs))


@dataclass(frozen=True)
class _Rows:
    """Rows between two steps."""

    columns: Mapping[str, pa.Array]
    count: int

    def values(self, terms: Iterable[Term]) -> list[pa.Array]:
        """Return the values of terms, with their types.

        Raises:
            NotKnownError: Only Spark computes one.
            DoubtError: One may be something else in Spark for some row.
            pyarrow.ArrowException: One cannot be computed for some row.
        """
        computation = Computation(Rows(self.columns), FUNCTIONS)
        return [self._array(computation, term) for term in terms]

    def filtered(self, kept: pa.Array, needed: Iterable[str]) -> _Rows:
        """Return the rows for which something is true."""
        return _Rows({name: self.columns[name].filter(kept) for name in needed}, kept.true_count)

    def _array(self, computation: Computation, term: Term) -> pa.Array:
        if pa.types.is_null(term.type):
            raise NotKnownError(term.text)
        value = computation.value(term, None)
        found = value if value.type == term.type else value.cast(term.type)
        return pa.repeat(found, self.count) if isinstance(found, pa.Scalar) else found


def why_not(program: Program) -> str | None:
    """Return why a program cannot run without Spark, in plain words; None when it can.

    It is tried on no rows: what Arrow does not compute for a type fails there, too.
    """
    tables = {step.table: _empty(step) for step in program.steps if isinstance(step, Lookup)}
    try:
        found = Runner(program, tables)(pa.RecordBatch.from_pylist([], program.columns))
    except NotKnownError as error:
        return str(error)
    return found.why if isinstance(found, Judge) else None


def _empty(step: Lookup) -> pa.Table:
    """Return a table without rows for a lookup."""
    columns = {name: term.type for term, name in step.on} | {source: kind for _, source, kind in step.columns}
    return pa.schema(list(columns.items())).empty_table()
