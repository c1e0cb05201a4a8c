"""The tables that the rows of a stream are looked up in, by name; they come and go with queries."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Set

from transom.engine.spark.lookups import LookupTable
from transom.errors import DefinitionError
from transom.model.time import Duration, parse_duration
from transom.sources.tables import Table


class StreamTables:
    """The tables of a stream; used by any thread."""

    def __init__(self) -> None:
        self._tables: list[LookupTable] = []
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """Their names, the oldest first."""
        return [table.name for table in self._tables]

    def table(self, table: Table, refresh: Duration | None, name: str | None) -> LookupTable:
        """Return a table with a name: the same one for the same arguments.

        Args:
            table: The table.
            refresh: How often it is read anew; None for never.
            name: Its name; None for table1, table2, ...

        Raises:
            DefinitionError: Another table has the name, or the duration makes no sense.
        """
        every = None if refresh is None else parse_duration(refresh, "lookup refresh")
        if every is not None and every <= 0:
            raise DefinitionError(f"lookup: refresh is {refresh!r}.", 'Write for example refresh="10 minutes".')
        with self._lock:
            for one in self._tables:
                if one.table == table and one.refresh == every and name in (None, one.name):
                    return one
            free = (f"table{n}" for n in itertools.count(len(self._tables) + 1))
            label = name or next(each for each in free if each not in self.names)
            return self._admitted(LookupTable(label, table, every))

    def admit(self, tables: Iterable[LookupTable]) -> None:
        """Take tables in, if they are not there.

        Raises:
            DefinitionError: Another table has the name of one.
        """
        with self._lock:
            for table in tables:
                self._admitted(table)

    def forget(self, tables: Set[LookupTable]) -> None:
        """Forget tables that no query needs any more."""
        with self._lock:
            self._tables = [table for table in self._tables if table not in tables]

    def _admitted(self, table: LookupTable) -> LookupTable:
        if table not in self._tables:
            if table.name in self.names:
                raise DefinitionError(f"lookup: there are two tables {table.name!r}.", "Give one of them another name.")
            self._tables.append(table)
        return table
