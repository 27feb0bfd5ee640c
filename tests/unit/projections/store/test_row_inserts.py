"""Row inserts: every row is stored once and in order, for any number of rows."""

import sqlite3
from contextlib import closing

import pytest

from projections.store.row_inserts import FEWER, VALUES_AT_ONCE, RowInsert

MANY = VALUES_AT_ONCE // 2
FEW = MANY // FEWER


@pytest.mark.parametrize(
    "count", [0, 1, FEW - 1, FEW, FEW + 1, MANY, MANY + 1, 2 * MANY + 3 * FEW + 2]
)
def test_rows_of_any_number_are_inserted_in_their_order(count: int) -> None:
    rows = [(f"name {number}", number) for number in range(count)]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE named (name TEXT, number INTEGER)")
        RowInsert("named", "name", "number").write(connection, rows)
        assert connection.execute("SELECT * FROM named ORDER BY rowid").fetchall() == rows
