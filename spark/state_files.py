"""Keeps the state of a streaming job beside Spark's own checkpoint, one file a micro-batch.

Spark repeats a micro-batch whose end it did not record, under the same number and with the same messages. So
the state from before it is kept until the one after it is surely done with.
"""

import re

from pyarrow import fs

KEPT_FILES = 3
_NAME = re.compile(r"(\d{12})\.state")


class StateFiles:
    """State files in a directory of any file system that pyarrow knows, given as a path or a URI."""

    def __init__(self, location: str) -> None:
        if "://" in location:
            self._files, self._directory = fs.FileSystem.from_uri(location)
        else:
            self._files, self._directory = fs.LocalFileSystem(), location
        self._files.create_dir(self._directory, recursive=True)

    def load_before(self, batch_id: int) -> bytes | None:
        """What was saved by the micro-batch before this one; None if it is not there."""
        if batch_id - 1 not in self._saved():
            return None
        with self._files.open_input_stream(self._path(batch_id - 1)) as stream:
            return bytes(stream.read())

    def save(self, batch_id: int, data: bytes) -> None:
        """Save the state after a micro-batch, as a whole or not at all, and delete those no longer needed."""
        partial = f"{self._path(batch_id)}.partial"
        with self._files.open_output_stream(partial) as stream:
            stream.write(data)
        self._files.move(partial, self._path(batch_id))
        for saved in self._saved():
            if not batch_id - KEPT_FILES < saved <= batch_id:
                self._files.delete_file(self._path(saved))

    def _saved(self) -> set[int]:
        infos = self._files.get_file_info(fs.FileSelector(self._directory))
        matches = (_NAME.fullmatch(info.base_name) for info in infos)
        return {int(match[1]) for match in matches if match}

    def _path(self, batch_id: int) -> str:
        return f"{self._directory}/{batch_id:012d}.state"
