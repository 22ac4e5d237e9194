"""The replay: its set-up on a trace, its rules, and what it must not depend on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from replay import command, keys, synthetic, traces
from replay.history import History
from replay.keys import KeySpread
from replay.measures import measure
from replay.profile import ProfileRules, policy_of
from replay.run import RULES, load_named
from replay.run import replay as run_replay
from replay.setup import Setup
from replay.simulation import play
from replay.traces import TraceUnreadable
from scalable.domain.keyspace import HashRange, key_hash, segment_hash

SHORT = Setup(points=300, coarse_points=100)
JSON_KEYS = {
    "profile",
    "violation_percent",
    "over_capacity_percent",
    "segments_over_clairvoyant",
    "actions",
    "splits",
    "merges",
}


def test_published_figures_are_met_again_on_a_whole_trace() -> None:
    """Figures that were published for this set-up: PIP-483's defaults and YDB's rules on the AMZN trace."""
    load = load_named("Twitter_volume_AMZN", Setup())
    for rule, violation, segments, actions in (("pip-483", 0.42, 3.86, 93), ("ydb", 1.61, 1.84, 1184)):
        found, _ = run_replay("AMZN", load, rule, setup=Setup(), keys=keys.uniform())
        assert found.violation_percent == pytest.approx(violation, abs=0.01)
        assert found.segments_over_clairvoyant == pytest.approx(segments, abs=0.01)
        assert found.actions == actions


@pytest.mark.parametrize("name", ["Twitter_volume_AMZN", "elb_request_count_8c0756", "nyc_taxi"])
def test_traces_are_scaled_capped_and_interpolated_by_time(name: str) -> None:
    trace, setup = traces.read(traces.find(name)), Setup()
    load = load_named(name, setup)
    count = setup.coarse_points if name == "nyc_taxi" else setup.points
    scale = setup.scale_rate / np.percentile(trace.values[:count], setup.scale_percentile)
    assert load.max() <= setup.cap_rate
    assert len(load) == pytest.approx(trace.seconds[count - 1] / setup.step_seconds, abs=1)
    for point in (0, 7, 50):
        step = trace.seconds[point] / setup.step_seconds
        assert load[int(step)] == pytest.approx(min(setup.cap_rate, trace.values[point] * scale), rel=0.2)


@pytest.mark.parametrize("rule", RULES)
def test_a_replay_is_deterministic_and_within_bounds(rule: str) -> None:
    load = load_named("elb_request_count_8c0756", SHORT)
    results = [run_replay("elb", load, rule, setup=SHORT, keys=keys.uniform()) for _ in range(2)]
    assert results[0][0] == results[1][0]
    outcome = results[0][1]
    outcome.layout.check()
    assert outcome.segments.max() <= SHORT.max_segments
    assert outcome.segments.min() >= 1


@pytest.mark.parametrize("profile", ["pip-483", "recommended"])
@pytest.mark.parametrize("spread", [keys.uniform(), keys.dominant(0.3)], ids=lambda each: each.name)
def test_leaving_out_decisions_that_come_to_nothing_changes_nothing(profile: str, spread: KeySpread) -> None:
    setup = replace(SHORT, points=60)
    history = History(load_named("elb_request_count_8c0756", setup), setup)
    policy = policy_of(profile, {}, setup.max_segments)
    outcomes = [
        play(history.load, ProfileRules(history, policy, every_tick=every), history, spread)
        for every in (False, True)
    ]
    assert outcomes[0].layout == outcomes[1].layout
    assert outcomes[0].splits == outcomes[1].splits
    assert outcomes[0].merges == outcomes[1].merges


def test_a_step_to_sixteen_segments_takes_recommended_one_decision_and_pip_483_many() -> None:
    setup = Setup(initial_segments=1)
    load = load_named("step", setup)
    found, outcome = run_replay("step", load, "recommended", setup=setup, keys=keys.uniform())
    assert found.converged_after_step_seconds is not None
    assert found.converged_after_step_seconds <= 30
    after = [step for step, _ in outcome.splits if step * setup.step_seconds >= 3_600]
    assert len(set(after)) <= 2
    letter, _ = run_replay("step", load, "pip-483", setup=setup, keys=keys.uniform())
    assert letter.converged_after_step_seconds is not None
    assert letter.converged_after_step_seconds >= 14 * 60


@pytest.mark.parametrize("profile", ["pip-483", "pulsar-5.0", "recommended"])
@pytest.mark.parametrize("segments", [1, 4, 8])
@pytest.mark.parametrize("period_seconds", [240, 3_600])
def test_load_about_a_threshold_for_two_hours_changes_little(
    profile: str, segments: int, period_seconds: float
) -> None:
    """Four operations at most; where eight segments are at the threshold of splits, one for each."""
    policy = policy_of(profile, {}, 64)
    swing = 1 + 0.2 * np.sin(2 * np.pi * np.arange(720) * 10 / period_seconds)
    setup = Setup(initial_segments=segments, warm_up_seconds=0)
    fits = policy.merge_target_share * policy.split_msg_rate_in_threshold / policy.min_merge_segments
    for threshold in (policy.split_msg_rate_in_threshold, fits or policy.merge_msg_rate_in_threshold):
        load = segments * threshold * swing
        found, _ = run_replay("about", load, profile, setup=setup, keys=keys.uniform())
        assert found.actions <= max(4, segments)
        assert found.splits <= 4 or found.merges == 0


@pytest.mark.parametrize("profile", ["pip-483", "pulsar-5.0", "recommended"])
@pytest.mark.parametrize("minutes", [27, 30, 40, 50, 60, 70, 90])
@pytest.mark.parametrize("share", [0.2, 0.35, 0.5, 0.8])
def test_jumps_about_a_threshold_for_two_hours_change_little(
    profile: str, minutes: int, share: float
) -> None:
    """Also where each low lasts for so long that a merge seems worth it, however short the highs are."""
    policy = policy_of(profile, {}, 64)
    setup = Setup(initial_segments=1, warm_up_seconds=0)
    for begins in (0.0, 0.1, 0.25, 0.5, 0.75):
        high = (np.arange(720) / (6 * minutes) + begins) % 1 < share
        load = policy.split_msg_rate_in_threshold * np.where(high, 1.2, 0.8)
        found, _ = run_replay("jumps", load, profile, setup=setup, keys=keys.uniform())
        assert found.actions <= 4, begins


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["elb_request_count_8c0756", "nyc_taxi"])
def test_recommended_is_below_the_published_rules_where_it_says_so(trace: str) -> None:
    """The first day and a half of the table in docs/autoscale.md: where a change of constants would show."""
    setup = Setup(points=400, coarse_points=100)
    load = load_named(trace, setup)
    ours, letter, pravega = (
        run_replay(trace, load, rule, setup=setup, keys=keys.uniform())[0]
        for rule in ("recommended", "pip-483", "pravega")
    )
    assert ours.violation_percent <= min(letter.violation_percent, pravega.violation_percent)
    assert ours.segments_over_clairvoyant < letter.segments_over_clairvoyant
    assert ours.actions < pravega.actions


@pytest.mark.parametrize(("segments", "rate"), [(1, 30_000), (4, 14_000), (8, 400_000), (16, 60_000)])
def test_a_dominant_key_is_alone_within_three_actions(segments: int, rate: float) -> None:
    """A segment is acted on once in a decision: those with splits bound the actions on the key's own."""
    setup = Setup(initial_segments=segments, warm_up_seconds=0)
    load = np.full(40, float(rate))
    _, outcome = run_replay("flat", load, "recommended", setup=setup, keys=keys.dominant(0.6))
    hash16 = segment_hash(key_hash(keys.DOMINANT_KEY))
    assert outcome.layout.find_active(hash16).hash_range == HashRange(hash16, hash16)
    assert len({step for step, _ in outcome.splits}) <= 3


@pytest.mark.parametrize(
    ("spread", "segments", "rate"),
    [
        ("uniform", 8, 100_000),
        ("zipf:1", 1, 250_000),
        ("zipf:1", 16, 700_000),
        ("dominant:0.3", 8, 700_000),
        ("dominant:0.6", 8, 14_000),
        ("dominant:0.95", 1, 6_000),
    ],
)
def test_a_steady_load_comes_to_rest(spread: str, segments: int, rate: float) -> None:
    """Also one that is too much for all the segments that there may be."""
    setup = Setup(initial_segments=segments, warm_up_seconds=3_600)
    load = np.full(720, float(rate))
    found, outcome = run_replay("flat", load, "recommended", setup=setup, keys=keys.parse(spread))
    assert outcome.splits, "it was no load that nothing is done about"
    assert found.actions == 0


def test_no_replay_begins_with_more_segments_than_there_may_be() -> None:
    assert Setup(initial_segments=4, max_segments=4).initial_segments == 4
    with pytest.raises(ValueError, match=r"initial_segments is 5: it must not be above max_segments \(4\)"):
        Setup(initial_segments=5, max_segments=4)


def test_zipf_keys_and_heat_add_up() -> None:
    spread = keys.parse("zipf:1.2")
    assert spread.below[-1] == pytest.approx(1)
    whole = HashRange(0, 65_535)
    assert spread.heat(whole, 32).sum() == pytest.approx(1)
    assert spread.heat(HashRange(5, 9), 32).sum() == pytest.approx(spread.share(HashRange(5, 9)))


@pytest.mark.parametrize("text", ["zipf", "zipf:0", "zipf:1_0", "zipf:nan", "dominant:1", "even", "zipf:x"])
def test_unknown_spreads_of_keys_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        keys.parse(text)


@pytest.mark.parametrize(
    "content",
    ["", "time,value\n1,2\n2,3\n", "timestamp,value\n1,2\n", "timestamp,value\n1,2\n1,3\n",
     "timestamp,value\n1,2\n2,nan\n", "timestamp,value\n1,2\n2,-3\n", "timestamp,value\n1,2\nnow,3\n",
     "timestamp,value\n1,2,5\n2,3,5\n", "timestamp,value\n1,2\ninf,3\n", "timestamp,value\n1,2\n1e300,3\n",
     "timestamp,value\n1,2\n1e13,3\n", f"timestamp,value\n1,{'1' * 200_000}\n2,3\n",
     "timestamp,value\n1,\"2\n2,3\n", "timestamp;value\n1;2\n2;3\n"],
)  # fmt: skip
def test_traces_that_cannot_be_read_say_why(content: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(content)
    with pytest.raises(TraceUnreadable, match=r"bad"):
        load_named(str(file), Setup())
    assert command.main(["--trace", str(file), "--profile", "ydb"]) == 2


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding_is_named(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_bytes("timestamp,value\n1,2\n\xe9,3\n".encode(encoding))
    with pytest.raises(TraceUnreadable, match=r"bad\.csv is no CSV in UTF-8"):
        traces.read(file)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_traces_of_spreadsheets_are_read(end: str, tmp_path: Path) -> None:
    """With their mark, ends of lines and empty lines, with which the line at fault is counted."""
    file, lines = tmp_path / "sheet.csv", ["timestamp,value", "1,2", "", "2,3", ""]
    file.write_bytes(end.join(lines).encode("utf-8-sig"))
    found = traces.read(file)
    assert (found.seconds.tolist(), found.values.tolist()) == ([0, 1], [2, 3])
    file.write_bytes(end.join([*lines, "2,3"]).encode("utf-8-sig"))
    with pytest.raises(TraceUnreadable, match=r"line 6"):
        traces.read(file)


def test_no_word_of_the_table_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--trace", "step", "--trace", "nyc_taxi", "--profile", "recommended", "--points", "40"]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed
    for word in ("nyc_taxi", "recommended", "violation", "clairvoyant", "converged"):
        assert word in printed


def test_the_command_gives_json_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, picture = tmp_path / "policy.json", tmp_path / "picture.png"
    policy.write_text('{"maxSegments": 12}')
    arguments = ["--trace", "step", "--profile", "recommended", "--profile", "pravega", "--json"]
    assert command.main([*arguments, "--policy", str(policy), "--picture", str(picture)]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["profile"] for each in results] == ["recommended", "pravega"]
    assert set(results[0]) > JSON_KEYS
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--trace", "nowhere.csv"],
        ["--step-seconds", "0"],
        ["--capacity", "nan"],
        ["--keys", "even"],
        ["--step-seconds", "1e-5", "--trace", "step"],
        ["--report-delay-seconds", "-50"],
        ["--warm-up-seconds", "nan"],
        ["--material-change", "-1"],
        ["--scale-percentile", "101"],
        ["--study", "ablation"],
        ["--study", "comparison", "--json"],
    ],
    ids=str,
)
def test_the_command_refuses_what_it_cannot_play(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--profile", "ydb", *arguments]) == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--trend-seconds", "1e9"], ["--report-delay-seconds", "1e9"], ["--warm-up-seconds", "1e9"]],
    ids=str,
)
def test_spans_may_be_longer_than_the_load(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--trace", "step", "--profile", "recommended", "--json", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["mean_segments"] >= 1


def test_peaks_count_for_an_hour_at_most_as_in_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A crowd every two hours: who remembers it for longer merges later."""
    load = np.tile(np.r_[np.full(60, 200_000.0), np.full(660, 20_000.0)], 4)
    found = {}
    for seconds in (1_200, 3_600, 7_200, 315_360_000):
        override = {"mergePeakSeconds": seconds}
        outcome = run_replay(
            "crowds", load, "recommended", setup=Setup(), keys=keys.uniform(), override=override
        )
        found[seconds] = outcome[0]
    assert found[1_200] != found[3_600] == found[7_200] == found[315_360_000]
    policy = tmp_path / "policy.json"
    for seconds, status in ((3_600, 0), (3_601, 2)):
        policy.write_text(json.dumps({"profile": "recommended", "mergePeakSeconds": seconds}))
        assert command.main(["--trace", "step", "--policy", str(policy), "--json"]) == status
    assert "mergePeakSeconds (3601) is above 3600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "arguments", "rules"),
    [('{"profile": "recommended", "maxSegments": 12}', [], ["recommended"]),
     ('{"profile": "recommended", "maxSegments": 12}', ["--profile", "ydb"], ["ydb"]),
     ('{"maxSegments": 12}', [], list(RULES))],
)  # fmt: skip
def test_a_policy_is_played_on_the_profile_that_it_names(
    content: str, arguments: list[str], rules: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(content, encoding="utf-8-sig")
    assert command.main(["--trace", "step", "--policy", str(policy), "--json", *arguments]) == 0
    assert [json.loads(line)["profile"] for line in capsys.readouterr().out.splitlines()] == rules


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe", b"[" * 60_000, b'{"maxSegments": ' + b"9" * 5_000 + b"}"]
)
def test_a_policy_that_cannot_be_read_is_named(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "mine.json"
    policy.write_bytes(content)
    assert command.main(["--trace", "step", "--policy", str(policy)]) == 2
    assert "mine.json is no JSON in UTF-8" in capsys.readouterr().err


def test_a_policy_that_has_a_name_twice_is_refused_with_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "mine.json"
    policy.write_text('{"maxSegments": 8, "minSegments": 1, "maxSegments": 12}')
    assert command.main(["--trace", "step", "--policy", str(policy)]) == 2
    assert "mine.json: the name 'maxSegments' is in one object twice" in capsys.readouterr().err


def test_results_are_told_before_a_picture_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "nowhere" / "picture.png"
    assert command.main(["--trace", "step", "--profile", "ydb", "--picture", str(picture)]) == 2
    assert "ydb" in capsys.readouterr().out


def test_a_contradictory_policy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"minSegments": 12, "maxSegments": 3}')
    assert command.main(["--trace", "step", "--profile", "pip-483", "--policy", str(policy)]) == 2
    assert "minSegments (12)" in capsys.readouterr().err


@pytest.mark.parametrize("shape", sorted(synthetic.SHAPES))
def test_made_up_loads_are_finite_and_the_same_each_time(shape: str) -> None:
    load = load_named(shape, SHORT)
    assert np.isfinite(load).all()
    assert (load >= 0).all()
    assert (load == load_named(shape, SHORT)).all()
    assert measure(
        play(load[:400], ProfileRules(History(load[:400], SHORT), policy_of("pip-483", {}, 64)),
             History(load[:400], SHORT), keys.uniform()),
        profile="pip-483", trace=shape, keys="uniform",
    ).mean_segments >= 1  # fmt: skip
