"""The paper's claims, one by one: with the comparisons and the runs that decide them."""

from collections.abc import Mapping

from uiat.config import AnyConfig
from uiat.reproduce.claims import Claim, Comparison, Evidence
from uiat.reproduce.evidence import (
    FLOOR,
    above_on_curve,
    faster,
    harder_half,
    lowered_for_most,
    lowered_in_every_class,
    milder_overfitting,
    more_accurate,
    smaller_gap,
)
from uiat.reproduce.experiments.figures import learning_cell
from uiat.reproduce.experiments.sweeps import EPOCH, GAMMA, LAMBDA, START, Sweep
from uiat.reproduce.experiments.tables import (
    LAST,
    NATURAL_AND_ROBUST,
    TABLE1_ATTACKS,
    TABLE1_METHODS,
    TABLE2_METHODS,
    TABLE4_METHODS,
    TABLE5_METHODS,
    ablated,
    network_timings,
    strongest,
)
from uiat.reproduce.measures import Attacked
from uiat.reproduce.scale import Scale
from uiat.reproduce.table import paper_figure

DATA_SETS = ("CIFAR-10", "CIFAR-100", "SVHN")
BASELINES = ("Rebuffi et al.", "HAT")
"""What Table 4 compares UIAT with."""
MARGIN = 0.01
"""One point: the largest difference of accuracies that are called level."""


def all_claims(scale: Scale) -> list[Claim]:
    """Return every claim at a scale."""
    return [
        *(_against(scale, name, data) for name in ("SAT", "TRADES", "MART", "HAT") for data in DATA_SETS),
        *(_one_off(scale, data) for data in DATA_SETS),
        *_ablation(scale),
        *_sweeps(scale),
        *_larger_eps(scale),
        *(_generated(scale, data) for data in ("CIFAR-10", "CIFAR-100")),
        *_strength(scale),
        *(_faster(scale, "UIAT", name) for name in ("IAT", "TRADES", "HAT")),
        *(_faster(scale, "UIAT (One-off)", name) for name in ("UIAT", "TRADES", "HAT")),
        *(_single_step(scale, name) for name in TABLE5_METHODS),
        *_halves_of_images(scale),
        _overfitting(scale),
        _inverse(scale),
    ]


def _gain(table: str, first: str, second: str, column: str) -> str:
    """Return the difference in the paper, in points."""
    return f"{float(paper_figure(table, first, column)) - float(paper_figure(table, second, column)):+.2f}"


Side = tuple[str, AnyConfig | None]
"""A method's name in the paper, and its run; `None`: the scale has none."""


def _as_stated(where: str, first: Side, second: Side, measure: Attacked, paper: str) -> Comparison:
    """Return the comparison that the paper's difference first − second implies: one is above, or they are level."""
    gain = float(paper)
    if gain < 0:
        return _as_stated(where, second, first, measure, f"{-gain:+.2f}")
    relation, margin = ("above", None) if gain else ("level with", MARGIN)
    return Comparison(f"{where}: {first[0]} {relation} {second[0]}", _if_both(first, second, measure), paper, margin)


def _if_both(first: Side, second: Side, measure: Attacked) -> Evidence | None:
    if first[1] is None or second[1] is None:
        return None
    return more_accurate([first[1]], [second[1]], measure)


def _all_but(text: str, gains: Mapping[str, str]) -> str:
    """Add the exceptions to a claim's text: where the paper's own figures show no gain."""
    others = [where for where, gain in gains.items() if float(gain) <= 0]
    return f"{text}, except for {' and '.join(others)}" if others else text


def _sides(scale: Scale, data: str, *rows: str) -> list[Side]:
    return [(row, scale.config(TABLE1_METHODS[row], data) if data in scale.data else None) for row in rows]


def _columns(scale: Scale) -> dict[str, str]:
    """Return the columns that claims about Table 1 compare, by the paper's."""
    return {column: strongest(scale) if column == "AA" else column for column in TABLE1_ATTACKS}


def _made_by(scale: Scale) -> str:
    """Return the experiment that measures them."""
    return "table1-last" if scale.weights == LAST else "table1"


def _against(scale: Scale, name: str, data: str) -> Claim:
    uiat, other = _sides(scale, data, "UIAT", name)
    gains = {column: _gain("table1", "UIAT", name, f"{data}/{column}") for column in TABLE1_ATTACKS}
    ours = _columns(scale)
    parts = [_as_stated(ours[c], uiat, other, scale.attacked(ours[c]), gain) for c, gain in gains.items()]
    text = f"UIAT lifts natural and robust accuracy over {name} ({scale.data.get(data, data)})"
    key = f"uiat-over-{TABLE1_METHODS[name]}-{data.lower()}"
    return Claim(key, _all_but(text, gains), "Table 1", tuple(parts), _made_by(scale))


def _one_off(scale: Scale, data: str) -> Claim:
    one_off, uiat = _sides(scale, data, "UIAT (One-off)", "UIAT")
    parts = []
    for theirs, column in _columns(scale).items():
        paper = _gain("table1", one_off[0], uiat[0], f"{data}/{theirs}")
        evidence = _if_both(one_off, uiat, scale.attacked(column))
        parts.append(Comparison(f"{column}: one-off level with UIAT", evidence, paper, margin=MARGIN))
    text = f"one-off UIAT is level with UIAT, within a point ({scale.data.get(data, data)})"
    return Claim(f"one-off-level-{data.lower()}", text, "Table 1, §4.2", tuple(parts), _made_by(scale))


def _ablation(scale: Scale) -> list[Claim]:
    def part(text: str, first: str, second: str, column: str) -> Comparison:
        pair = (ablated(scale, first), ablated(scale, second))
        paper = _gain("table6", first, second, "AA" if column == "Robust" else column)
        return Comparison(f"{text}: {column}", more_accurate(pair[:1], pair[1:], scale.attacked(column)), paper)

    drops = [part("row 1 above row 2", "1", "2", column) for column in ("PGD-20", "Robust")]
    uag = (part("row 2 above row 1", "2", "1", "Natural"), *drops)
    lifts = [
        part(f"row {first} above row {second}", first, second, column)
        for first, second in (("3", "2"), ("4", "2"), ("5", "3"), ("5", "4"))
        for column in ("PGD-20", "Robust")
    ]
    fr, iam = (*lifts[0:2], *lifts[6:8]), (*lifts[2:4], *lifts[4:6])
    every = tuple(part("row 5 above row 1", "5", "1", column) for column in ("Natural", "PGD-20", "Robust"))
    claims = {
        "uag": ("universal generation lifts natural and lowers robust accuracy", uag),
        "fr": ("the feature-level term lifts robust accuracy", fr),
        "iam": ("momentum lifts robust accuracy", iam),
        "all-parts": ("all three parts lift natural and robust accuracy over IAT", every),
    }
    return [Claim(name, text, "Table 6, §5.1", parts, "table6") for name, (text, parts) in claims.items()]


def _sweeps(scale: Scale) -> list[Claim]:
    def part(column: str, text: str, first: list[AnyConfig], second: list[AnyConfig]) -> Comparison:
        return Comparison(f"{column}, {text}", more_accurate(first, second, scale.attacked(column)))

    def split(sweep: Sweep, at: float) -> tuple[list[AnyConfig], list[AnyConfig]]:
        values = sweep.values(scale)
        above = [sweep.config(scale, value) for value in values if value >= at]
        return above, [sweep.config(scale, value) for value in values if value < at]

    gamma = part("Robust", "γ from 0.9 on above smaller γ", *split(GAMMA, 0.9))
    claims = [Claim("larger-gamma", "a larger γ lifts robust accuracy", "App. D, Fig. S2b", (gamma,), "figS2")]
    for sweep in (START, EPOCH):
        text = f"{sweep.symbol} from the middle of training on above earlier ones"
        parts = tuple(part(column, text, *split(sweep, 0.5)) for column in NATURAL_AND_ROBUST)
        claim = f"{sweep.symbol} belongs in the second half of training"
        claims.append(Claim(f"second-half-{sweep.field}", claim, "App. D, Fig. S2", parts, "figS2"))
    least, *_, most = LAMBDA.values(scale)
    small, large = [LAMBDA.config(scale, least)], [LAMBDA.config(scale, most)]
    names = f"of λ = {most:g} and λ = {least:g}"
    parts = (
        part("Robust", f"{names} the larger is above", large, small),
        part("Natural", f"{names} the smaller is above", small, large),
    )
    text = "a larger λ lifts robust and lowers natural accuracy"
    return [*claims, Claim("trade-off", text, "§5.3, Fig. 3", parts, "fig3")]


def _larger_eps(scale: Scale) -> list[Claim]:
    def part(levels: int, column: str, name: str, margin: float | None = None) -> Comparison:
        pair = [scale.larger(method, levels) for method in ("uiat", TABLE1_METHODS[name])]
        paper = _gain("table3", f"{levels}/255/UIAT", f"{levels}/255/{name}", column)
        evidence = more_accurate(pair[:1], pair[1:], scale.attacked(column))
        relation = "over" if margin is None else "level with"
        text = f"trained at ε = {scale.show_radius(levels)}, {column}, {relation} {name}"
        return Comparison(text, evidence, paper, margin)

    robust = [part(levels, "Robust", name) for levels in scale.larger_radii for name in ("TRADES", "HAT")]
    natural = [part(levels, "Natural", "HAT", MARGIN) for levels in scale.larger_radii]
    claims = {
        "larger-eps": ("UIAT is more robust than TRADES and HAT", robust),
        "larger-eps-natural": ("UIAT has the natural accuracy of HAT, within a point", natural),
    }
    return [
        Claim(name, f"trained at a larger ε, {text}", "Table 3, §4.2", tuple(parts), "table3")
        for name, (text, parts) in claims.items()
    ]


def _generated(scale: Scale, data: str) -> Claim:
    parts = []
    for network in ("PRN-18", "WRN-28-10"):
        ours, *others = ((row, scale.generated(TABLE4_METHODS[row], data, network)) for row in ("UIAT", *BASELINES))
        for other in others:
            for column in NATURAL_AND_ROBUST:
                paper = _gain("table4", f"{data}/{network}/UIAT", f"{data}/{network}/{other[0]}", column)
                parts.append(_as_stated(f"{network}, {column}", ours, other, scale.attacked(column), paper))
    text = f"with generated images, UIAT lifts natural and robust accuracy over {' and '.join(BASELINES)} ({data})"
    return Claim(f"generated-{data.lower()}", text, "Table 4", tuple(parts), "table4")


def _strength(scale: Scale) -> list[Claim]:
    measure = scale.difference_curve()
    pair = (scale.config("uiat-oneoff"), scale.config("trades"))
    weak = [k for k, eps in enumerate(measure.grid) if eps <= scale.eps * 1.0001]
    strong = [k for k in range(len(measure.grid)) if k not in weak]
    radius = scale.show_radius(8)
    below = Comparison(f"mean over ε ≤ {radius}, one-off above TRADES", above_on_curve(*pair, measure, weak))
    above = Comparison(f"mean over ε > {radius}, TRADES above one-off", above_on_curve(*pair[::-1], measure, strong))
    return [
        Claim("weak-attacks", "UIAT wins up to the ε of training", "§5.4, Fig. 5", (below,), "fig5"),
        Claim("strong-attacks", f"TRADES wins above ε = {radius}", "§5.4, Fig. 5", (above,), "fig5"),
    ]


def _faster(scale: Scale, first: str, second: str) -> Claim:
    timings, parts = network_timings(scale), []
    for network, ours in scale.networks.items():
        evidence = faster(timings[network], TABLE2_METHODS[first], TABLE2_METHODS[second])
        paper = f"{60 * float(_gain('table2', second, first, network)):+.1f}"
        parts.append(Comparison(f"seconds an epoch saved, {ours}", evidence, paper, percent=False))
    name = f"{TABLE2_METHODS[first]}-faster-than-{TABLE2_METHODS[second]}"
    return Claim(name, f"{first} is faster than {second}", "Table 2", tuple(parts), "table2")


def _single_step(scale: Scale, name: str) -> Claim:
    gains, parts, method, plugged = {}, [], TABLE5_METHODS[name], f"{name} + UIAT"
    for levels in scale.single_step_radii:
        ours, plain = scale.single_step(f"{method}-uiat", levels), scale.single_step(method, levels)
        for column in ("Natural", "Robust"):
            where = f"{column} at ε = {scale.show_radius(levels)}"
            gains[where] = _gain("table5", plugged, name, f"{levels}/255/{column}")
            part = _as_stated(where, (plugged, ours), (name, plain), scale.attacked(column, LAST), gains[where])
            parts.append(part)
    text = _all_but(f"UIAT lifts natural and robust accuracy of {name}", gains)
    return Claim(f"single-step-{method}", text, "Table 5, §4.3", tuple(parts), "table5")


def _halves_of_images(scale: Scale) -> list[Claim]:
    pair, measure = (scale.config("uiat-oneoff"), scale.config("trades")), scale.halves_curve()
    where = f"at the largest ε at which both harder halves are above {FLOOR:.0%}"
    gap = Comparison(f"gap {where}: TRADES' − one-off's", smaller_gap(*pair, measure))
    harder = Comparison(f"accuracy of the harder half {where}: one-off above TRADES", harder_half(*pair, measure))
    lowest = measure.grid.index(min(measure.grid))
    inverse = Comparison(
        f"accuracy at ε = −{scale.show_radius(8)}: one-off above TRADES", above_on_curve(*pair, measure, [lowest])
    )
    claims = {
        "smaller-gap": ("the gap between the easier and the harder half is smaller than TRADES'", gap),
        "harder-half": ("the harder half of the images is more robust than TRADES'", harder),
        "inverse-correct": ("inverse adversarial examples are more often classified correctly than TRADES'", inverse),
    }
    return [Claim(name, text, "§5.4, Fig. 4", (part,), "fig4") for name, (text, part) in claims.items()]


def _overfitting(scale: Scale) -> Claim:
    evidence = milder_overfitting(learning_cell(scale, "uiat-oneoff"), learning_cell(scale, "sat"))
    part = Comparison("fall of robust test accuracy from its best epoch to the last: PGD-AT's − one-off's", evidence)
    return Claim("overfitting", "robust overfitting is milder than PGD-AT's", "§5.2, Fig. 2", (part,), "fig2")


def _inverse(scale: Scale) -> Claim:
    config, measure = scale.config("uiat"), scale.inverse()
    parts = []
    for loss, title in (("cross_entropy", "cross-entropy"), ("l_inv", "L_Inv of Eq. 4")):
        overall = lowered_for_most(config, measure, loss)
        least = lowered_in_every_class(config, measure, loss)
        parts.append(Comparison(f"{title}: share of images lowered − 50 %", overall))
        parts.append(Comparison(f"{title}: the same in the class with the smallest share", least))
    text = "a class's universal inverse perturbation lowers the loss for most of its examples"
    return Claim("inverse-lowers", text, "Eq. 5", tuple(parts), "figS1")
