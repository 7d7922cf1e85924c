"""The folder of a run that another client began: what may be brought into it unasked."""

from __future__ import annotations

from skyward_nb.workdir.working_folder import WorkingFolder, attached_folder, key_of


def test_only_a_folder_that_was_sent_from_here_is_written_to(tmp_path):
    root, key = str(tmp_path), key_of(tmp_path, "train")

    def found(root=root, key=key, pool="train", trusted=True):
        folder = attached_folder(root, key, ("runs/*",), pool, trusted=trusted)
        assert folder is not None and folder.fetch == ("runs/*",)
        return folder

    assert found() == WorkingFolder(tmp_path, key, fetch=("runs/*",))
    assert attached_folder("", "", (), "train", trusted=True) is None
    assert found(pool="other").not_ours and found(trusted=False).not_ours
    assert found(root=str(tmp_path.parent)).not_ours
    assert found(root=f"{root}/gone", key=key_of(tmp_path / "gone", "train")).not_ours
