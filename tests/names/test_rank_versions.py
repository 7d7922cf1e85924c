from skyward_nb.names.rank_versions import RankVersions


def test_each_rank_lacks_what_it_was_not_given_in_this_version():
    given: RankVersions[int] = RankVersions()
    wanted = {"a": 1, "b": 1}
    assert given.lacking(wanted, (0, 1)) == ["a", "b"]
    given.note(wanted, (0,))
    assert given.lacking(wanted, (0,)) == []
    assert given.lacking(wanted, (0, 1)) == ["a", "b"], "rank 1 has none"
    given.note({"a": 1}, (1,))
    assert given.lacking(wanted, (0, 1)) == ["b"]
    assert given.lacking({"a": 2}, (0,)) == ["a"]
    given.forget([0])
    assert given.lacking(wanted, (0,)) == ["a", "b"]
    assert given.lacking({"a": 1}, (1,)) == []
    given.forget()
    assert given.lacking({"a": 1}, (1,)) == ["a"]
