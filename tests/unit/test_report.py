"""The page: self-contained, complete, escaped, and honest about what must not be used."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from report_runs import KILL, OBJECTIVE, acks, distribution, metrics, run, shown

from penstock.cli import output
from penstock.domain.metrics import Distribution, MessageCounts, RunSecond
from penstock.domain.run import RunEvent
from penstock.domain.settings import ProducerSettings
from penstock.domain.shapes import Finding
from penstock.domain.verdict import Judgement, Verdict
from penstock.report import formatting, outcome, settings_diff, tables
from penstock.report.charts import message_states
from penstock.report.figures import COUNTS
from penstock.report.markup import data_script
from penstock.report.matrix_charts import axes, over_matrix
from penstock.report.page import render
from penstock.report.percentiles import by_percentile, latency_by_percentile
from penstock.report.reported_run import ReportedRun, sides
from penstock.report.timeline import timeline
from penstock.specs.files import write_file

VOID = {"meta", "input", "br", "link", "img"}


class Page(HTMLParser):
    """What a browser makes of it: elements with attributes, text, the data of the charts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], "elements that were not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self._open[-1:] == ["style"]:
            self.styles.append(data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    @property
    def charts(self) -> dict[str, dict[str, Any]]:
        [data] = [s for s in self.scripts if s.startswith('{"charts"')]
        return {chart["id"]: chart["figure"] for chart in json.loads(data)["charts"]}

    def having(self, **criteria: str) -> list[str]:
        return [
            tag
            for tag, attributes in self.elements
            if all(attributes.get(name.rstrip("_")) == value for name, value in criteria.items())
        ]


def page(*runs: ReportedRun, **more: Any) -> Page:
    return Page(render(runs, "Orders", **more))


def campaign(batches: Sequence[int] = (1, 10, 100), repeats: int = 2) -> list[ReportedRun]:
    return [
        shown(
            f"acks={a}, batch.num.messages={b} #{r + 1}",
            metrics(p50_ms=10.0 * b**0.5 + r, lost=100 // b),
            run(
                {"settings.acks": a, "settings.batch.num.messages": str(b)},
                r,
                ProducerSettings(acks=a, batch_num_messages=b),
            ),
        )
        for b in batches
        for a in ("1", "all")
        for r in range(repeats)
    ]


NOTHING_ARRIVED = metrics(p50_ms=None, lost=1000, failed=1000)
NOTHING_SENT = metrics(p50_ms=None, sent=0, seconds=())

SETS = {
    "one": [shown(made=run(objective=OBJECTIVE, events=(KILL,)))],
    "two": [acks("1", 24.0, lost=3), acks("all", 48.0)],
    "repeats": [acks("1", 24.0 + i, i) for i in range(3)],
    "campaign": campaign(),
    "many": campaign(batches=range(1, 13), repeats=1),
    "nothing arrived": [shown(of=NOTHING_ARRIVED)],
    "nothing arrived on one side": [shown("a"), shown("b", NOTHING_ARRIVED, name="b")],
    "nothing sent": [shown(of=NOTHING_SENT, made=run(status="interrupted"))],
}


@pytest.fixture(params=SETS, ids=str)
def runs(request: pytest.FixtureRequest) -> list[ReportedRun]:
    return SETS[request.param]


def test_it_loads_nothing_from_anywhere(runs: list[ReportedRun]) -> None:
    document = page(*runs)
    for tag, attributes in document.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "source")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    for style in document.styles:
        assert "url(" not in style and "@import" not in style
    [policy] = [
        a["content"]
        for tag, a in document.elements
        if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None and policy.startswith("default-src 'none';")
    own = (Path(render.__code__.co_filename).parent / "page.js").read_text()
    assert not re.search(r"https?:|fetch\(|import\(|XMLHttp", own)


def test_its_charts_are_what_plotly_takes(runs: list[ReportedRun]) -> None:
    document = page(*runs)
    places = {a["id"] for _, a in document.elements if (a.get("id") or "").startswith("chart-")}
    charts = document.charts if places else {}
    assert {f"chart-{name}" for name in charts} == places
    for figure in charts.values():
        go.Figure(figure)  # raises for an attribute or a value that Plotly does not know
        assert all(len(trace["x"]) == len(trace["y"]) <= 2000 for trace in figure["data"])


def test_charts_and_tables_are_described_for_those_who_do_not_see_them(
    runs: list[ReportedRun],
) -> None:
    document = page(*runs)
    for tag, attributes in document.elements:
        if attributes.get("class") == "chart":
            assert attributes["role"] == "img" and attributes["aria-label"]
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
    tags = [tag for tag, _ in document.elements]
    assert tags.count("h1") == 1
    assert tags.count("caption") == tags.count("table")
    headings = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(b - a <= 1 for a, b in pairwise(headings))


# --- what it says --------------------------------------------------------------------------------


def test_the_outcome_comes_first() -> None:
    document = page(*SETS["two"])
    [sentence] = [w for w in document.words if w.startswith("acks=all #1 against acks=1 #1")]
    assert document.words.index(sentence) < document.words.index("Overview")


def test_every_number_of_a_run_is_there() -> None:
    of = metrics(
        lost=31,
        duplicated=7,
        acknowledged_yet_lost=13,
        unsent=101,
        warm_up=202,
        failed=303,
        unknown=404,
        failed_yet_delivered=505,
        redelivered=606,
        foreign=707,
        stale=808,
        first_try=909,
        after_retries=112,
        lost_first_try=222,
        lost_after_retries=333,
        never_left=111,
        tries_unknown=444,
        records=555,
    )
    text = page(shown(of=of, made=run(objective=OBJECTIVE))).text
    for field in fields(MessageCounts):
        number = getattr(of.counts, field.name)
        assert number, f"the test gives {field.name} no number"
        assert f"{COUNTS[field.name]} {number:,} " in text
    assert of.latency is not None
    for part in (of.latency, of.acknowledgement, *of.parts.values()):
        assert part is not None
        for estimate in (part.mean_ms, *part.percentiles_ms.values()):
            assert formatting.bare(estimate.value, "ms") in text
            assert formatting.interval(estimate.low, estimate.high, "ms") in text
    for value in (
        "24 ms",
        "40.8",
        "0.917",
        "0.3, 0.3, 0.3, 0.1",
        "[23, 25]",
        "1.5 %",
        "100 /s",
        "0.009 MB/s",
        "0.01 MB/s",
    ):
        assert value in text


def test_the_kpi_is_shown_with_its_weights_where_there_is_one() -> None:
    table = tables.kpis([shown("a"), shown("b", of=replace(metrics(), kpi=None))])
    assert table.columns == ["KPI", "a"]
    assert [row[1] for row in table.rows] == [
        "0.917",
        "bandwidth unknown",
        "90 %",
        "0.3, 0.3, 0.3, 0.1",
    ]
    assert tables.kpis([shown(of=replace(metrics(), kpi=None))]).rows == []


def test_every_count_has_a_title() -> None:
    assert set(COUNTS) == {field.name for field in fields(MessageCounts)}
    assert len(set(COUNTS.values())) == len(COUNTS)


def test_the_verdict_says_limit_measured_and_whether_it_is_certain() -> None:
    certain = metrics(lost=500, half=1.0)
    text = page(shown(of=certain, made=run(objective=OBJECTIVE))).text
    assert "The objective is not met" in text
    assert "lost share ≤ 0.1 % 50 % [49.9, 50.1] not met certain" in text
    doubtful = metrics(duplicated=100, half=50.0)
    text = page(shown(of=doubtful, made=run(objective=OBJECTIVE))).text
    assert "duplicated share ≤ 10 % 10 % [5, 15] met within the noise" in text
    text = page(shown(of=metrics(half=None), made=run(objective=OBJECTIVE))).text
    assert "lost share ≤ 0.1 % 0 % met cannot tell" in text
    text = page(shown(of=NOTHING_ARRIVED, made=run(objective=OBJECTIVE))).text
    assert "share later than 50 ms ≤ 1 % nothing arrived not met" in text


def test_an_invalid_run_is_announced_before_any_figure() -> None:
    reason = "the generator was late by 31 ms (p99); 10 ms are allowed"
    document = page(shown(made=run(invalid=(reason,), objective=OBJECTIVE)))
    assert document.having(role="alert") == ["div"]
    assert f"Invalid run: {reason}." in document.text
    assert document.words.index(
        "Invalid: do not use the figures of this run"
    ) < document.words.index("p50 latency")


def test_of_several_runs_the_invalid_ones_are_named() -> None:
    bad = acks("all", 48.0)
    bad = replace(bad, run=replace(bad.run, invalid=("late",)))
    text = page(acks("1", 24.0), bad).text
    assert "do not use the figures of 1 of 2 runs" in text
    assert "late (acks=all #1)" in text


def test_warnings_of_the_run_and_of_its_figures_are_shown() -> None:
    one = shown(made=run(warnings=("the load average was 9",)))
    doubtful = replace(one.metrics, warnings=("the wall clock was set",))
    text = page(replace(one, metrics=doubtful)).text
    assert "the load average was 9" in text
    assert "the wall clock was set" in text


def test_the_outcome_counts_runs_that_meet_the_objective() -> None:
    limit = Judgement(name="lost_share", limit=0.5, measured=0.0, is_met=True)
    met = Verdict(is_met=True, judgements=(limit,))
    missed = replace(met, is_met=False)
    one, other = acks("1", 24.0), acks("all", 48.0)
    text = page(replace(one, verdict=met), replace(other, verdict=missed)).text
    assert "1 of 2 runs meets the objective." in text


def test_findings_and_failed_cells() -> None:
    findings = [
        Finding(holds=True, sentence="lost_share falls over batch"),
        Finding(holds=False, sentence="duplicated_share does not rise"),
    ]
    text = page(*SETS["campaign"], findings=findings, failed=[("acks=0", "no brokers")]).text
    assert "1 of 2 expected shapes hold." in text
    assert "✓ holds lost_share falls over batch" in text
    assert "✗ does not hold duplicated_share does not rise" in text
    assert "acks=0 no brokers" in text
    assert "1 cell failed: no brokers." in text


def test_only_failed_cells() -> None:
    assert "1 cell failed: no brokers." in page(failed=[("acks=0", "no brokers")]).text


def test_settings_that_differ_and_those_in_common() -> None:
    document = page(*SETS["two"])
    assert "settings.acks 1 all " in document.text
    assert "workload.arrivals.rate_per_s 100 " in document.text
    different, common = settings_diff.split([s.run.spec for s in SETS["two"]])
    assert different == {"settings.acks": ["1", "all"]}
    assert common["topic.partitions"] == "3"
    assert "seed" not in common and "name" not in common


def test_a_setting_that_only_one_has_differs() -> None:
    one, other = (run(settings=s).spec for s in (ProducerSettings(), ProducerSettings(retries=3)))
    assert settings_diff.split([one, other])[0] == {"settings.retries": [None, "3"]}


def test_the_scenario_versions_machine_seed_and_generator_are_there() -> None:
    text = page(shown(made=run(repeat=4))).text
    assert "kind: constant" in text and "rate_per_s: 100.0" in text
    assert "version of kafka 4.3.1" in text
    assert "memory mb 24,000" in text
    assert "seed 5" in text
    assert "producer 1 1,000 1,000 12 87 412" in text


# --- escaping ------------------------------------------------------------------------------------

EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">&amp;\u2028'


def test_nothing_that_comes_from_files_becomes_markup() -> None:
    evil_run = run(
        {"settings.acks": EVIL, EVIL: "1"},
        settings=ProducerSettings(other={"client.rack": EVIL}),
        events=(RunEvent(at_s=1.0, took_s=1.0, sentence=EVIL),),
        warnings=(EVIL,),
        invalid=(EVIL,),
        versions={EVIL: EVIL},
        machine={"name": EVIL},
        unreadable=(1,),
    )
    plain = run({"settings.acks": "1", EVIL: "2"})
    text = render(
        [shown(EVIL, made=evil_run), shown(f"{EVIL} 2", made=plain), *SETS["campaign"]],
        EVIL,
        findings=[Finding(holds=True, sentence=EVIL)],
        failed=[(EVIL, EVIL)],
    )
    document = Page(text)
    tags = [tag for tag, _ in document.elements]
    assert tags.count("script") == 3  # data, Plotly, ours
    assert "img" not in tags
    assert not any(name.startswith("on") for _, a in document.elements for name in a)
    assert EVIL in "".join(document.words)


def test_plotly_gets_no_tags_either() -> None:
    """It draws links and line breaks that it finds in labels."""
    label = '<a href="https://example.org">x</a>'
    document = page(shown(label), shown("b", name="b"))
    names = {trace.get("name") for f in document.charts.values() for trace in f["data"]}
    assert label not in names
    assert "&lt;a href=&quot;https://example.org&quot;&gt;x&lt;/a&gt;" in names


def test_no_text_ends_the_script_that_holds_the_data() -> None:
    written = data_script("charts", {"name": EVIL})
    assert written.count("<") == written.count(">") == 2
    inside = written.partition(">")[2].rpartition("<")[0]
    assert json.loads(inside) == {"name": EVIL}


def test_text_that_ends_like_an_interval_is_not_taken_for_one() -> None:
    """Only figures have an interval below them; a reason stays as it was written."""
    reason = "offsets [1, 2]"
    text = render(SETS["one"], "t", failed=[("acks=1", reason)])
    assert f"<td>{reason}</td>" in text
    assert re.search(r'<td class="number">24\n<small>\[23, 25\]</small></td>', text)


def test_the_contents_name_every_section(runs: list[ReportedRun]) -> None:
    text = render(runs, "Orders")
    linked = re.findall(r'<li><a href="#([^"]+)">([^<]+)</a></li>', text)
    assert linked == re.findall(r'<section id="([^"]+)"[^>]*><h2[^>]*>([^<]+)</h2>', text)
    assert len(linked) >= 4


# --- charts --------------------------------------------------------------------------------------


def test_latency_by_percentile_is_the_distribution() -> None:
    of = Distribution(
        count=100,
        mean_ms=distribution(1.0).mean_ms,
        deviation_ms=29.0,
        percentiles_ms={},
        min_ms=1.0,
        max_ms=100.0,
        buckets=tuple((k * 1_000_000, 1) for k in range(1, 101)),
    )
    x, y = by_percentile(of)
    assert y == pytest.approx(list(range(1, 101)))
    # The value of rank k stands at (k − ½) / n.
    assert x == pytest.approx([100 / (100 - k + 0.5) for k in range(1, 101)], rel=1e-4)


def test_a_long_distribution_is_thinned_and_keeps_its_ends() -> None:
    buckets = tuple((k * 1_000, 1) for k in range(1, 50_001))
    of = replace(distribution(1.0), buckets=buckets, min_ms=0.0012, max_ms=50.02, count=50_000)
    x, y = by_percentile(of, limit=500)
    assert 100 < len(x) <= 500
    assert (y[0], y[-1]) == (0.0012, 50.02)  # exactly, not by their buckets
    assert x[-1] == pytest.approx(2 * 50_000)
    assert sorted(v for v in y if v is not None) == y


def test_a_latency_of_zero_can_be_drawn_on_a_logarithmic_axis() -> None:
    of = replace(distribution(1.0), buckets=((0, 5), (1_000_000, 5)), min_ms=0.0)
    _, y = by_percentile(of)
    assert y and all(v is not None and v > 0 for v in y)


def test_message_states_add_up() -> None:
    chart = message_states(
        sides([shown(of=metrics(lost=30, duplicated=20, acknowledged_yet_lost=10))])
    )
    assert chart is not None
    bars = {t["name"]: t["x"][0] for t in chart.figure["data"] if t["xaxis"] == "x"}
    assert bars == pytest.approx(
        {"delivered once": 95.0, "duplicated": 2.0, "lost": 2.0, "acknowledged yet lost": 1.0}
    )


def test_what_is_on_the_right_of_the_states_is_only_what_went_wrong() -> None:
    chart = message_states(sides([shown(of=metrics(lost=30))]))
    assert chart is not None
    right = [t["name"] for t in chart.figure["data"] if t["xaxis"] == "x2"]
    assert right == ["lost"]
    fine = message_states(sides([shown()]))
    assert fine is not None and "xaxis2" not in fine.figure["layout"]


def test_the_timeline_marks_faults_and_the_warm_up() -> None:
    chart = timeline(sides([shown(made=run(events=(KILL,)))]))
    assert chart is not None
    shapes = chart.figure["layout"]["shapes"]
    assert [(s["x0"], s["x1"]) for s in shapes if s["name"] == "warm-up"] == [(-2, 0)]
    assert [(s["x0"], s["x1"]) for s in shapes if s["name"] == "side-0"] == [(4.0, 4.4), (4.0, 4.0)]
    text = page(shown(made=run(events=(KILL,)))).text
    assert "1 4 s 0.4 s broker 2 was killed" in text


def test_a_long_timeline_keeps_its_worst_second() -> None:
    seconds = tuple(
        RunSecond(at_s=i, due=10, received=10, p50_ms=1.0, p99_ms=999.0 if i == 7001 else 2.0)
        for i in range(10_000)
    )
    chart = timeline(sides([shown(of=metrics(seconds=seconds))]))
    assert chart is not None
    [p99] = [t for t in chart.figure["data"] if t["name"] == "p99"]
    assert len(p99["x"]) <= 2000
    assert max(p99["y"]) == 999.0
    assert p99["x"][p99["y"].index(999.0)] in range(6990, 7002)


def test_seconds_in_which_nothing_arrived_are_gaps() -> None:
    seconds = (RunSecond(at_s=0, due=9, p50_ms=1.0, p99_ms=1.0), RunSecond(at_s=1, due=9))
    chart = timeline(sides([shown(of=metrics(seconds=seconds))]))
    assert chart is not None
    [p50] = [t for t in chart.figure["data"] if t["name"] == "p50"]
    assert p50["y"] == [1.0, None]


def test_a_campaign_is_drawn_over_its_axes() -> None:
    campaign_sides = sides(campaign(batches=(100, 1, 10)))
    placed = axes(campaign_sides)
    assert placed is not None
    assert (placed.x, placed.lines) == ("settings.batch.num.messages", "settings.acks")
    assert placed.values[placed.x] == ["1", "10", "100"]  # by size, not as they came
    charts = {chart.id: chart for chart in over_matrix(campaign_sides)}
    lost = charts["matrix-lost_share"].figure["data"]
    assert [t["name"] for t in lost] == ["1", "all"]
    assert [t["x"] for t in lost] == [[1.0, 10.0, 100.0]] * 2
    assert lost[0]["y"] == pytest.approx([10.0, 1.0, 0.1])
    p50 = charts["matrix-latency.p50_ms"].figure["data"][0]
    assert p50["y"] == pytest.approx([10.5, 32.123, 100.5], rel=1e-3)
    assert all(bar > 0 for bar in p50["error_y"]["array"])


def test_further_axes_become_panels() -> None:
    panel_runs = [
        shown(
            f"{a} {b} {c}",
            metrics(p50_ms=10.0 * b),
            run({"settings.acks": a, "size_bytes": str(b), "codec": c}),
        )
        for a in ("1", "all")
        for b in (1, 2, 3)
        for c in ("lz4", "zstd")
    ]
    placed = axes(sides(panel_runs))
    assert placed is not None
    assert (placed.x, placed.lines, placed.panels) == ("size_bytes", "settings.acks", ("codec",))
    chart = over_matrix(sides(panel_runs))[0]
    assert [a["text"] for a in chart.figure["layout"]["annotations"]] == [
        "codec=lz4",
        "codec=zstd",
    ]
    assert {t["yaxis"] for t in chart.figure["data"]} == {"y", "y2"}


def test_no_chart_has_more_lines_than_colours_and_the_page_lets_one_choose() -> None:
    few = page(*SETS["campaign"])
    assert few.having(type="checkbox") == []
    document = page(*SETS["many"])
    assert len(document.having(type="checkbox")) == 24
    chosen = [a for _, a in document.elements if a.get("type") == "checkbox" and "checked" in a]
    assert 0 < len(chosen) <= 8
    chart = latency_by_percentile(sides(SETS["many"]))
    assert chart is not None and chart.is_choice
    assert {t["meta"]["side"] for t in chart.figure["data"]} == set(range(24))


# --- sentence, tables, numbers, file -------------------------------------------------------------


def test_the_sentence_of_a_run() -> None:
    assert outcome.of_run(shown(of=metrics(lost=3, acknowledged_yet_lost=2))) == (
        "Of 1,000 messages 3 (0.3 %) were lost and none duplicated; 2 of the lost had been "
        "acknowledged; of those that arrived, half within 24 ms and 99 % within 192 ms."
    )
    assert outcome.of_run(shown(of=NOTHING_ARRIVED)) == (
        "Of 1,000 messages 1,000 (100 %) were lost and none duplicated; nothing arrived."
    )
    assert outcome.of_run(shown(of=NOTHING_SENT)) == "No message was sent in the measured time."


def test_tables_fit_the_terminal_renderer(
    runs: list[ReportedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    for table in (
        tables.states(runs),
        tables.latencies(runs),
        tables.throughputs(runs),
        tables.overview(runs),
        tables.verdicts(runs),
    ):
        assert all(len(row) == len(table.columns) for row in table.rows)
        output.table(*table)
    assert "sent" in capsys.readouterr().out


def test_runs_are_columns_while_they_fit() -> None:
    assert tables.states(SETS["two"]).columns == ["messages", "acks=1 #1", "acks=all #1"]
    many = tables.states(SETS["campaign"])
    assert many.columns[:2] == ["run", "sent"] and len(many.rows) == len(SETS["campaign"])


def test_the_overview_has_a_row_per_cell_and_says_how_many_repeats_met_the_objective() -> None:
    runs = [
        shown(f"orders #{i + 1}", metrics(lost=lost), run(repeat=i, objective=OBJECTIVE))
        for i, lost in enumerate((0, 0, 100))
    ]
    # 1.5 % are later than 50 ms in all of them, so none is met; without that limit two are.
    runs = [
        replace(s, verdict=replace(s.verdict, is_met=i < 2))  # type: ignore[type-var]
        for i, s in enumerate(runs)
    ]
    table = tables.overview(runs)
    assert table.columns[:3] == ["run", "repeats", "sent"]
    [row] = table.rows
    assert [str(cell) for cell in row[:3]] == ["orders", "3", "3,000"]
    assert str(row[-1]) == "met by 2 of 3"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (24.04, "24"),
        (24.15, "24.1"),
        (1234.6, "1,235"),
        (0.012345, "0.0123"),
        (-3.5, "−3.5"),
        (1e-15, "0"),
        (999.99, "1,000"),
        (float("nan"), "–"),
    ],
)
def test_numbers_have_three_digits(number: float, text: str) -> None:
    assert formatting.significant(number) == text


@pytest.mark.parametrize(
    ("new", "old", "text"),
    [(48, 24, "×2.0"), (25, 24, "+4.2 %"), (1, 4, "×0.25"), (1200, 24, "×50"), (1, 0, "")],
)
def test_ratios(new: float, old: float, text: str) -> None:
    assert formatting.ratio(new, old) == text


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("an earlier one")
    write_file(path, render(SETS["one"], "Orders – ζ"))
    text = path.read_bytes().decode("utf-8")
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n")
    assert "<title>Orders – ζ</title>" in text
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
