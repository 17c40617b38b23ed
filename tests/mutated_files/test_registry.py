"""Every module that reads files of users has an entry in the registry of readers."""

from __future__ import annotations

import ast
from pathlib import Path

import augury
from tests.mutated_files.readers import READERS

PACKAGE = Path(augury.__file__).parent
READING_CALLS = {
    "open_regular", "load_whole", "read_unpacked", "read_parquet", "read_parquet_schema",
    "scan_parquet", "read_csv", "scan_csv", "read_ndjson", "memmap", "fromfile", "ZipFile",
    "read_bytes", "read_text", "open_gzip",
}  # fmt: skip
"""Calls by which modules read files."""
NO_FORMAT = {
    "core.files": "defines how files are opened",
    "ingest.run_files": "computes digests and decodes nothing",
    "report.page.document": "reads the package's own templates, styles and scripts",
    "capture.cpu_limit": "reads files of the kernel",
    "ingest.rank.staged_allocations": "reads what the same import has just written",
    "capture.launcher.time_modules": "reads what the job that it started has just written",
    "capture.torch.profiler_window": "reads the trace that its own process has just written",
}
"""Modules that read files and need no reader of their own, with the reason."""


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def _reads_files(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in READING_CALLS or (name == "load" and "np.load" in ast.unparse(called)):
                return True
    return False


def test_every_module_that_reads_files_has_a_reader():
    covered = {module for reader in READERS for module in reader.covers}
    reading = {_module(path) for path in PACKAGE.rglob("*.py") if _reads_files(path)}
    formats = {
        f"ingest.formats.{path.stem}"
        for path in (PACKAGE / "ingest/formats").glob("*.py")
        if path.stem != "__init__"
    }
    files = {_module(path) for path in PACKAGE.rglob("*_file.py")}
    missing = (reading | formats | files) - covered - set(NO_FORMAT)
    assert missing == set(), "add a Reader to tests/mutated_files/readers.py"


def test_every_entry_names_a_module():
    modules = {_module(path) for path in PACKAGE.rglob("*.py")}
    named = {module for reader in READERS for module in reader.covers} | set(NO_FORMAT)
    assert named - modules == set()
    assert len({reader.name for reader in READERS}) == len(READERS)
