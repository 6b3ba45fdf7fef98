"""Just enough of the MySQL protocol to read a few rows from a local OceanBase, standard library only.

A user without a password, statements without parameters, results as text. The demo reads Cursors and
Heads with it, as it reads them from the file on SQLite; the product itself has a real driver.
"""

from __future__ import annotations

import socket
import struct

PROTOCOL_41, WITH_DATABASE, SECURE, PLUGIN = 1 << 9, 1 << 3, 1 << 15, 1 << 19
UTF8MB4 = 45
QUERY = b"\x03"


class MySqlError(OSError):
    """The server refused a connection or a statement, or said something unknown."""


def quoted(value: str | int) -> str:
    """A value as it stands in a statement."""
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def query(address: tuple[str, int], database: str, sql: str) -> list[tuple]:
    """The rows of one statement, run by `root` on a connection of its own; whole numbers are `int`."""
    with socket.create_connection(address, timeout=10) as connection:
        stream = connection.makefile("rb")
        _log_in(connection, stream, database)
        _send(connection, 0, QUERY + sql.encode())
        first = _receive(stream)
        if first[0] == 0:
            return []
        columns, _ = _length(first, 0)
        kinds = [_kind(_receive(stream)) for _ in range(columns)]
        _receive(stream)
        rows = []
        while not _is_end(packet := _receive(stream)):
            rows.append(_row(packet, kinds))
        return rows


def _log_in(connection: socket.socket, stream, database: str) -> None:
    _receive(stream)
    flags = PROTOCOL_41 | WITH_DATABASE | SECURE | PLUGIN
    greeting = struct.pack("<IIB23x", flags, 1 << 24, UTF8MB4) + b"root\0" + b"\0" + database.encode() + b"\0"
    _send(connection, 1, greeting + b"mysql_native_password\0")
    answer = _receive(stream)
    if answer[0] == 0xFE:
        _send(connection, 3, b"")
        _receive(stream)


def _send(connection: socket.socket, sequence: int, body: bytes) -> None:
    connection.sendall(len(body).to_bytes(3, "little") + bytes([sequence]) + body)


def _receive(stream) -> bytes:
    header = stream.read(4)
    if len(header) < 4:
        raise MySqlError("the database closed the connection")
    body = stream.read(int.from_bytes(header[:3], "little"))
    if body[:1] == b"\xff":
        raise MySqlError("the database answered: " + body[9:].decode(errors="replace"))
    return body


def _is_end(packet: bytes) -> bool:
    return packet[0] == 0xFE and len(packet) < 9


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded number and the place behind it."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1:at + 1 + width], "little"), at + 1 + width


def _kind(definition: bytes) -> int:
    """The type of a column: the byte behind six texts, character set and length."""
    at = 0
    for _ in range(6):
        size, at = _length(definition, at)
        at += size
    return definition[at + 1 + 2 + 4]


def _row(packet: bytes, kinds: list[int]) -> tuple:
    values, at = [], 0
    for kind in kinds:
        if packet[at] == 0xFB:
            values.append(None)
            at += 1
            continue
        size, at = _length(packet, at)
        text = packet[at:at + size].decode()
        at += size
        # Whole numbers, and the decimals that a sum of them becomes.
        values.append(int(text) if kind in (0, 1, 2, 3, 8, 9, 246) else text)
    return tuple(values)
