"""Flags for XLA: the lists, the checks and merging."""

from __future__ import annotations

import pytest

from tfvolta.knobs.xla_flags import check_flags, known_flags, merge_flags, parse_flags, unchecked_flags


@pytest.mark.parametrize("version", ["2.15.1", "2.21.0"])
@pytest.mark.parametrize(("variable", "prefix", "least"), [("XLA_FLAGS", "xla_", 120), ("TF_XLA_FLAGS", "tf_", 25)])
def test_lists_are_sorted_and_hold_names_and_kinds(version: str, variable: str, prefix: str, least: int) -> None:
    kinds = known_flags(version, variable)
    assert kinds is not None and len(kinds) >= least
    assert list(kinds) == sorted(kinds)
    assert set(kinds.values()) <= {"bool", "number", "text", "choice"}
    assert all(name.startswith(prefix) for name in kinds)


def test_the_lists_know_what_changed_between_releases() -> None:
    old, new = known_flags("2.15.1"), known_flags("2.21.0")
    assert old is not None and new is not None
    for name, kind in [("xla_gpu_autotune_level", "number"), ("xla_dump_to", "text"), ("xla_hlo_profile", "bool")]:
        assert old[name] == kind and (name not in new or new[name] == kind)
    assert "xla_gpu_graph_level" in old and "xla_gpu_graph_level" not in new


@pytest.mark.parametrize(
    ("flag", "version"),
    [
        ("--xla_gpu_autotune_level=4", "2.15.1"),
        ("--xla_gpu_autotune_level=4", "2.21.0"),
        ("--xla_gpu_deterministic_ops", "2.21.0"),
        ("--xla_gpu_deterministic_ops=1", "2.21.0"),
        ("--xla_gpu_deterministic_ops=False", "2.15.1"),
        ('--xla_dump_to="/tmp/my dump"', "2.21.0"),
        ("--xla_dump_to=", "2.21.0"),
    ],
)
def test_good_flags_pass(flag: str, version: str) -> None:
    assert check_flags([flag], version) == []
    assert unchecked_flags([flag], version) is None


@pytest.mark.parametrize(
    ("flag", "version", "words"),
    [
        ("--xla_gpu_autotune_levl=4", "2.21.0", "did you mean --xla_gpu_autotune_level?"),
        ("--xla-gpu-autotune-level=4", "2.21.0", "did you mean --xla_gpu_autotune_level?"),
        ("--xla_gpu_graph_level=1", "2.21.0", "TensorFlow 2.15"),
        ("--qqq=1", "2.21.0", "leave it out"),
        ("--tf_xla_auto_jit=2", "2.21.0", "it is a flag of TF_XLA_FLAGS"),
        ("xla_gpu_autotune_level=4", "2.21.0", "write --xla_gpu_autotune_level=4"),
        ("-xla_gpu_autotune_level=4", "2.21.0", "write --xla_gpu_autotune_level=4"),
        ("--xla_dump_to=/tmp --xla_gpu_autotune_level=4", "2.21.0", "make it 2 entries"),
        ("", "2.21.0", "leave it out"),
        ("--xla_gpu_autotune_level", "2.21.0", "write --xla_gpu_autotune_level=VALUE"),
        ("--xla_gpu_autotune_level=high", "2.21.0", "=NUMBER"),
        ("--xla_gpu_deterministic_ops=yes", "2.21.0", "=true"),
        ("--xla_gpu_deterministic_ops=1", "2.15.1", "goes on without it"),
    ],
)
def test_bad_flags_are_named_with_a_fix(flag: str, version: str, words: str) -> None:
    (problem,) = check_flags([flag], version)
    assert words in str(problem)
    assert problem.expected and problem.received and problem.why and problem.fix


def test_unknown_flags_say_that_they_abort_the_process() -> None:
    (problem,) = check_flags(["--xla_nope=1"], "2.21.0")
    assert "aborts the process" in problem.why and "without a traceback" in problem.why


def test_all_problems_come_at_once_and_duplicates_only_where_values_differ() -> None:
    flags = ["--xla_nope", "xla_dump_to=/tmp", "--xla_gpu_autotune_level=1", "--xla_gpu_autotune_level=2"]
    assert len(check_flags(flags, "2.21.0")) == 3
    assert check_flags(["--xla_gpu_autotune_level=1"] * 2, "2.21.0") == []
    assert check_flags(["--xla_gpu_deterministic_ops", "--xla_gpu_deterministic_ops=true"], "2.21.0") == []


@pytest.mark.parametrize("version", ["2.18.0", "2.30.0", "2.8.4", None, "2.21.0+nv26.1"])
def test_a_release_without_a_list_is_a_note_and_still_finds_malformed_flags(version: str | None) -> None:
    flags = ["--xla_gpu_autotune_level=4", "--xla_gpu_graph_level=0"]
    assert check_flags(flags, version) == []
    note = unchecked_flags(flags, version)
    assert note is not None and "no list" in note
    assert len(check_flags(["xla_dump_to=/tmp"], version)) == 1
    if version == "2.18.0":
        assert "2.15 has them all" in note and "2.21 lacks --xla_gpu_graph_level" in note
    assert unchecked_flags([], version) is None


def test_parsing_keeps_quotes_together() -> None:
    text = "  --xla_dump_to='/tmp/my dump'  --xla_gpu_deterministic_ops --xla_a=\"x=y\" stray --xla_a=2"
    assert parse_flags(text) == {"xla_dump_to": "/tmp/my dump", "xla_gpu_deterministic_ops": "true", "xla_a": "2"}
    assert parse_flags("") == {}


def test_merging_adds_and_never_overwrites() -> None:
    flags = ["--xla_gpu_autotune_level=4", "--xla_dump_to=/tmp"]
    text, conflicts = merge_flags("--xla_gpu_autotune_level=2 --xla_gpu_deterministic_ops", flags)
    assert text == "--xla_gpu_autotune_level=2 --xla_gpu_deterministic_ops --xla_dump_to=/tmp"
    assert [str(conflict) for conflict in conflicts] == [
        "--xla_gpu_autotune_level=2, where the config has --xla_gpu_autotune_level=4"
    ]


@pytest.mark.parametrize("user", ["", None, "  "])
def test_merging_with_nothing(user: str | None) -> None:
    assert merge_flags(user, ["--xla_a=1"]) == ("--xla_a=1", [])
    assert merge_flags("--xla_a=1", []) == ("--xla_a=1", [])


def test_equal_values_are_no_conflict() -> None:
    assert merge_flags("--xla_a=true", ["--xla_a"]) == ("--xla_a=true", [])


def test_a_users_file_of_flags_cannot_be_added_to() -> None:
    text, conflicts = merge_flags("/etc/xla.flags", ["--xla_a=1"])
    assert text == "/etc/xla.flags" and [conflict.name for conflict in conflicts] == ["xla_a"]
