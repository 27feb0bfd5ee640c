"""Damage: a file that does not hold what the log says it must."""


class DamagedProjection(Exception):
    """The file does not hold what the log says it must; delete it and let it be built again."""


def check_closed(table: str, found: int, wanted: int) -> None:
    """Raise Damaged unless as many rows of a table were closed as the log closes."""
    if wanted and found != wanted:
        raise DamagedProjection(
            f"the table {table} has {found} of {wanted} rows that the log now closes: delete the"
            " file, it is built again from the log"
        )
