"""Sends the audit log to a collector as OTLP logs: every record at least once, in order, by one gateway at a time.

The log in the store is the spool: nothing is held here but one batch, and how far the collector has got is kept in the
store, too, so that another gateway goes on from there. While the collector is away, records wait as long as the log
keeps them (`audit.max_entries`, `audit.keep_days`); those it deleted before are counted and told. Above: `toolfold
serve`.
"""

import asyncio
import logging
import secrets
import time
from typing import Any

import msgspec

from toolfold import __version__
from toolfold.audit.log import AuditLog
from toolfold.audit.record import Step, decode_step
from toolfold.errors import ConfigError, StoreError
from toolfold.storage.base import AuditRow, Store

__all__ = ["_AuditExporter", "_encode_line"]

log = logging.getLogger("toolfold.telemetry")

_NAMESPACE, _CURSOR, _LEASE = "audit-export", "otlp", "audit-export"
_BATCH = 500
_LOOK_S = 1.0
_MAX_PAUSE_S = 30.0
_LEASE_S = 60.0
_TIMEOUT_S = 10.0
# How long a missing number is waited for: another gateway's record may be on its way with it.
_GAP_S = 5.0
# How long the last records may take when the gateway ends.
_LAST_S = 5.0


class _AuditExporter:
    """Follows one audit log. Raises `ConfigError` where OpenTelemetry is not installed."""

    def __init__(self, store: Store, audit_log: AuditLog, endpoint: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.sdk._logs import ReadableLogRecord
        except ImportError as error:
            raise ConfigError(
                "telemetry.audit is on, and OpenTelemetry is not installed, or is older than 1.40",
                next_action="install it with: pip install -U 'toolfold[otel]', or set telemetry.audit = false",
            ) from error
        self._store, self._log = store, audit_log
        self._made = ReadableLogRecord
        self._exporter = OTLPLogExporter(endpoint=endpoint or None, timeout=_TIMEOUT_S)
        self._holder = secrets.token_hex(8)
        self._cursor = -1
        self._gap_since = 0.0
        self._failing = False
        self._dropped = 0

    async def run(self) -> None:
        """Sends what is recorded until it is cancelled, and then what is left."""
        pause = _LOOK_S
        try:
            while True:
                sent = await self._send_next()
                pause = min(2 * pause, _MAX_PAUSE_S) if self._failing else _LOOK_S
                await asyncio.sleep(0 if sent else pause)
        except asyncio.CancelledError:  # after a fault it goes on
            await self._end()
            raise

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(_LAST_S):
                await self._log.flush()
                while not self._failing and await self._send_next():
                    pass
                await self._store.release_lease(_LEASE, self._holder)
        except (TimeoutError, StoreError) as error:
            log.warning("the last records of the audit log were not sent (%s): they wait", type(error).__name__)
        await asyncio.to_thread(self._exporter.shutdown)

    async def _send_next(self) -> bool:
        """Sends one batch, where it is this gateway's turn; whether there may be more."""
        try:
            if not await self._store.take_lease(_LEASE, self._holder, for_s=_LEASE_S):
                self._cursor = -1  # another one goes on, and knows how far it got
                return False
            if self._cursor < 0:
                self._cursor = int(await self._store.get(_NAMESPACE, _CURSOR) or 0)
            rows = self._whole(await self._store.audit_rows(after=self._cursor, first=_BATCH))
            self._tell(len(rows))
            if not rows or not await asyncio.to_thread(self._export, rows):
                return False
            self._cursor = rows[-1].number
            await self._store.put(_NAMESPACE, _CURSOR, str(self._cursor).encode())
        except StoreError as error:
            self._failed(f"the store fails: {type(error).__name__}")
            return False
        if self._failing:
            log.warning("the audit log is sent again")
            self._failing = False
        self._tell(0)
        return len(rows) == _BATCH

    def _whole(self, rows: list[AuditRow]) -> list[AuditRow]:
        """The rows up to the first number that is missing and may still come."""
        now = time.monotonic()
        expected = self._cursor + 1
        for place, row in enumerate(rows):
            if row.number > expected and (place or self._cursor):
                self._gap_since = self._gap_since or now
                if now < self._gap_since + _GAP_S:
                    return rows[:place]
                if not place:  # the log deletes from its beginning
                    self._dropped += row.number - expected
                    log.warning("%d records of the audit log were deleted before they were sent", row.number - expected)
                self._gap_since = 0.0
            expected = row.number + 1
        return rows

    def _tell(self, waiting: int) -> None:
        self._log.more_gauges = {"audit_export_dropped": self._dropped, "audit_export_waiting": waiting}

    def _failed(self, why: str) -> None:
        if not self._failing:
            log.warning("the audit log cannot be sent, and waits: %s", why)
        self._failing = True

    def _export(self, rows: list[AuditRow]) -> bool:
        """Whether the collector took them. Runs in a thread."""
        from opentelemetry.sdk._logs.export import LogRecordExportResult

        result = self._exporter.export([self._record(row) for row in rows])
        if result is not LogRecordExportResult.SUCCESS:
            self._failed("the collector does not take it")
            return False
        return True

    def _record(self, row: AuditRow) -> Any:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        step = decode_step(row.record)
        wrong = bool(step.code or step.is_error)
        record = LogRecord(
            timestamp=int(step.at * 1e9),
            observed_timestamp=time.time_ns(),
            severity_number=SeverityNumber.WARN if wrong else SeverityNumber.INFO,
            severity_text="WARN" if wrong else "INFO",
            body=row.record.decode("utf-8", "replace"),
            attributes=_attributes(row.number, step),
            event_name=f"toolfold.audit.{step.step}",
        )
        resource = Resource.create({"service.name": "toolfold", "service.version": __version__})
        return self._made(record, resource, InstrumentationScope("toolfold.audit", __version__))


def _attributes(number: int, step: Step) -> dict[str, Any]:
    """What a collector filters by; the whole record is the body."""
    found = {
        "toolfold.audit.number": number,
        "toolfold.audit.id": step.id,
        "toolfold.caller": step.caller,
        "toolfold.session": step.session,
        "toolfold.tool.id": step.tool_id,
        "toolfold.tool.version": step.version,
        "error.type": step.code or ("tool_error" if step.is_error else ""),
        "toolfold.seconds": step.seconds,
    }
    return {key: value for key, value in found.items() if value not in ("", None)}


def _encode_line(row: AuditRow) -> bytes:
    """A record as a line of JSON: its number, by which a later export goes on, and the record."""
    return b'{"number":%d,' % row.number + bytes(msgspec.json.encode(decode_step(row.record)))[1:] + b"\n"
