"""A pool's folders stay where temporary folders are tidied up by age."""

import asyncio
import os

from pools import values

from skyward_nb.node.folder_lock import FolderRefresher
from skyward_nb.providers import folders


def test_a_pool_whose_lock_was_tidied_away_is_not_swept(make):
    pool = make()
    runtime = folders.pool_folders(pool.pool_id).runtime
    for path in runtime.iterdir():
        if path.is_file():
            path.unlink()
    os.utime(runtime, (0, 0))
    assert not folders.is_dead(runtime)
    assert not folders.sweep()
    assert values(pool, "1 + 1") == [2, 2]


def test_a_folder_without_a_lock_that_nobody_holds_is_dead(tmp_path):
    os.utime(tmp_path, (0, 0))
    assert folders.is_dead(tmp_path)


def test_files_are_touched_again_and_again(tmp_path):
    own, store, spill = tmp_path / "root" / "p", tmp_path / "store", tmp_path / "never made"
    for folder in (own, store):
        folder.mkdir(parents=True)
    touched = [own / "lock", own, own.parent, store]
    value = store / "value"
    for path in (own / "lock", value):
        path.touch()

    def age():
        for path in (*touched, value):
            os.utime(path, (0, 0))

    def all_new():
        return all(path.stat().st_mtime > 0 for path in touched)

    async def live():
        staying = FolderRefresher((own, store, spill), every=0.01)
        age()
        staying.begin(asyncio.get_running_loop())
        assert all_new()
        age()
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if all_new():
                break
        assert all_new()
        staying.end()
        age()
        await asyncio.sleep(0.05)
        assert not any(path.stat().st_mtime for path in touched)

    asyncio.run(live())
    assert value.stat().st_mtime == 0
    assert not spill.exists()
