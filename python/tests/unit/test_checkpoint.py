# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import io
import itertools
import os
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional
from unittest import mock

import di_orchestrator as di
from di_orchestrator import checkpoint as module


class Crash(BaseException):
    """The node loses power."""


class Disk:
    """A folder on a disk that loses what was not synced: the content of files, and the names in the folder."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.left = folder, steps
        #: The synced content by inode, and the synced names.
        self.synced: Dict[int, bytes] = {}
        self.names: Dict[str, int] = {}
        self.fsync, self.replace, self.unlink = os.fsync, os.replace, os.unlink

    def step(self) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1

    def on_fsync(self, descriptor: int) -> None:
        self.step()
        self.fsync(descriptor)
        status = os.fstat(descriptor)
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            self.names = {path.name: path.stat().st_ino for path in self.folder.iterdir()}
        else:
            self.synced[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def on_replace(self, source: Any, target: Any) -> None:
        self.step()
        self.replace(source, target)

    def lose(self, are_new_names_lost: bool, are_removals_lost: bool) -> None:
        """Leave in the folder what the disk has after the loss of power."""
        now = {path.name: path.stat().st_ino for path in self.folder.iterdir()}
        kept = {name: inode for name, inode in self.names.items() if are_removals_lost or name in now}
        names = kept if are_new_names_lost else {**kept, **now}
        for path in list(self.folder.iterdir()):
            self.unlink(path)
        for name, inode in names.items():
            (self.folder / name).write_bytes(self.synced.get(inode, b""))


class Checkpoints(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "a" / "b"

    def resume(self, **options: Any) -> Optional[int]:
        found = di.Checkpoint(self.folder, **options).load(lambda file: file.read())
        if found is None:
            return None
        saved, content = found
        self.assertEqual(content, b"state %d" % saved.step)
        return saved.step

    def save(self, *steps: int, **options: Any) -> di.Checkpoint:
        checkpoint = di.Checkpoint(self.folder, **options)
        for step in steps:
            checkpoint.save(step, b"state %d" % step)
        return checkpoint

    def files(self) -> List[str]:
        return sorted(os.listdir(self.folder))

    def test_the_newest_is_resumed(self) -> None:
        self.assertIsNone(self.resume())
        self.save(100, 200)
        self.assertEqual(self.resume(), 200)

    def test_the_order_is_that_of_saving(self) -> None:
        self.save(900, 100)
        self.assertEqual(self.resume(), 100)

    def test_as_many_are_kept_as_wanted(self) -> None:
        self.save(1, 2, 3, 4, keep=2)
        self.assertEqual(len(self.files()), 4)
        self.save(5, keep=1)
        self.assertEqual(len(self.files()), 2)

    def test_a_function_writes_and_meta_is_kept(self) -> None:
        checkpoint = di.Checkpoint(self.folder)
        saved = checkpoint.save(7, lambda file: file.write(b"state 7"), reward=12.5)
        self.assertEqual(checkpoint.latest(), saved)
        self.assertEqual((saved.step, saved.meta, saved.path.read_bytes()), (7, {"reward": 12.5}, b"state 7"))

    def test_a_damaged_one_is_skipped(self) -> None:
        def truncate(path: Path) -> None:
            path.write_bytes(path.read_bytes()[:-1])

        def flip(path: Path) -> None:
            path.write_bytes(path.read_bytes()[:-1] + b"X")

        damages: List[Callable[[Path], None]] = [truncate, flip, os.unlink]
        for damage in damages:
            for suffix in (".data", ".json"):
                with self.subTest(damage=damage.__name__, suffix=suffix):
                    shutil.rmtree(self.folder, ignore_errors=True)
                    saved = self.save(1, 2).latest()
                    assert saved is not None
                    damage(saved.path.with_suffix(suffix))
                    self.assertEqual(self.resume(), 1)
                    self.save(3)
                    self.assertEqual(self.resume(), 3)

    def test_a_full_disk_leaves_the_earlier_ones(self) -> None:
        checkpoint = self.save(1)

        def fill(file: io.BufferedIOBase) -> None:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

        before = self.files()
        with self.assertRaises(OSError):
            checkpoint.save(2, fill)
        self.assertEqual(self.files(), before)
        self.assertEqual(self.resume(), 1)

    def test_writers_of_one_directory_have_names(self) -> None:
        self.save(1, name="rank")
        self.save(2, name="rank-1")
        self.assertEqual((self.resume(name="rank"), self.resume(name="rank-1"), self.resume(name="rank-2")), (1, 2, None))

    def test_files_of_a_writer_that_died_are_removed_once_they_are_old(self) -> None:
        self.save(1)
        old, new = self.folder / ".checkpoint-000000000002.data.x.tmp", self.folder / ".checkpoint-000000000002.data.y.tmp"
        old.write_bytes(b"")
        new.write_bytes(b"")
        os.utime(old, (0, 0))
        self.save(2)
        self.assertEqual([old.exists(), new.exists()], [False, True])

    def test_what_was_saved_survives_a_loss_of_power_at_any_moment(self) -> None:
        for losses in itertools.product((True, False), repeat=2):
            crashes, is_finished = 0, False
            while not is_finished:
                shutil.rmtree(self.folder, ignore_errors=True)
                disk = Disk(self.folder, 1 << 30)
                done = 0
                with mock.patch.object(module.os, "fsync", disk.on_fsync), mock.patch.object(module.os, "replace", disk.on_replace):
                    try:
                        for step in (1, 2, 3):
                            if step == 3:
                                disk.left = crashes
                            self.save(step, keep=1)
                            done = step
                        is_finished = True
                    except Crash:
                        pass
                disk.lose(*losses)
                with self.subTest(crashes=crashes, losses=losses):
                    resumed = self.resume()
                    self.assertIn(resumed, (done, done + 1))
                crashes += 1
            self.assertGreater(crashes, 4)

    def test_a_volume_that_cannot_sync_a_folder_is_used_all_the_same(self) -> None:
        fsync = os.fsync

        def refuse(descriptor: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                raise OSError(errno.EINVAL, "Invalid argument")
            fsync(descriptor)

        with mock.patch.object(module.os, "fsync", refuse):
            self.save(1)
        self.assertEqual(self.resume(), 1)

    def test_what_cannot_be_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "keep is 0: must be at least 1"):
            di.Checkpoint(self.folder, keep=0)
        with self.assertRaisesRegex(ValueError, "name is 'a/b': must consist of"):
            di.Checkpoint(self.folder, name="a/b")


if __name__ == "__main__":
    unittest.main()
