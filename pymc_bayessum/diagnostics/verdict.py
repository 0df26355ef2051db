"""What to think of a normaliser: the verdict, the reason for it, advice, and a report in words."""

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from pymc_bayessum.diagnostics.evaluation import Part
from pymc_bayessum.diagnostics.importance import MINIMUM_DRAWS
from pymc_bayessum.diagnostics.marginals import Moved
from pymc_bayessum.normalizers.protocol import Facts

__all__ = [
    "UNTRUSTED",
    "advice_on",
    "judge_draws",
    "judge_point",
    "notes_on",
    "report_on",
    "stopped_short",
]

#: No posterior mean may move by more than this many posterior sds.
HARMLESS_SHIFT = 0.1
GOOD_KHAT = 0.5
#: Weights below this many times their mean are much the same, whatever their tail.
EQUAL_WEIGHTS = 2.0
#: So many effective draws leave a corrected mean within .07 of its sd, and its sd within 5%.
MINIMUM_ESS = 200
#: Weights that move a mean by more than this many sds rest on draws of the tail: twice as many.
FAR = 1.0
UNTRUSTED = "not to be trusted"


def judge_draws(
    check: xr.Dataset, marginals: Callable[[], Moved | None] = lambda: None
) -> tuple[str, str]:
    """Return the verdict on the draws and the reason for it.

    Where the weights do not suffice, ``marginals`` is asked how far the marginals have moved.
    """
    khat, ess, n_draws = check.attrs["khat"], check.attrs["ess"], check.attrs["draws"]
    threshold, shift = check.attrs["khat_threshold"], check.attrs["shift"]
    trouble = _trouble(check) or _cut_short(check)
    if trouble:
        return UNTRUSTED, trouble
    if np.isinf(khat) and n_draws < MINIMUM_DRAWS:
        return UNTRUSTED, f"{n_draws} draws are too few to tell how far the posterior has moved"
    # A heavy tail of weights that are all alike has nothing to be heavy with.
    largest = n_draws * float(np.exp(check["log_weight"].values.max()))
    harmless = shift <= HARMLESS_SHIFT and (khat < GOOD_KHAT or largest < EQUAL_WEIGHTS)
    # How much of the variation of the log-likelihood error the references make up.
    noise = float((check["reference_noise"] * check["times"]).sum("normalizer").std())
    if not harmless and khat < GOOD_KHAT and ess >= MINIMUM_ESS and noise <= HARMLESS_SHIFT:
        # The shift bounds what any mean can do; those of the parameters are seen in the weights.
        weighted = Moved(check.attrs["moved_mean"], check.attrs["moved_sd"], 0.0)
        if max(weighted) + 2.0 * shift / np.sqrt(n_draws) <= HARMLESS_SHIFT:
            return "good", _unmoved(weighted)
    moved = None
    if not harmless or noise > HARMLESS_SHIFT:
        moved = marginals()
        if moved is not None:
            # What varies along all of many directions together may be small along each.
            noise = min(noise, moved.noise)
        if moved is not None and max(moved) <= HARMLESS_SHIFT:
            return "good", _unmoved(moved)
    if khat >= threshold and not harmless:
        return UNTRUSTED, (
            f"the posterior has moved further than its draws reach: Pareto k {khat:.2f} is above "
            f"{threshold:.2f}"
        )
    if noise > HARMLESS_SHIFT:
        return UNTRUSTED, (
            f"the reference is not accurate enough to tell: its own error moves the "
            f"log-likelihood by {noise:.2g} from draw to draw"
        )
    if harmless:
        return "good", f"no posterior mean moves by more than {max(shift, 1e-3):.2g} of its sd"
    needed = MINIMUM_ESS * (2 if check.attrs["moved_mean"] > FAR else 1)
    if ess < needed:
        return UNTRUSTED, (
            f"the weights leave only {ess:.1f} effective draws of {n_draws}; a correction "
            f"needs {needed}"
        )
    # The bound holds for any function of the parameters; where their own moves are known, these.
    largest_shift = shift if moved is None else moved.shift
    off = f"posterior means may be off by up to {largest_shift:.2g} of their sd"
    if moved is not None:
        off += f", sds by {moved.stretch:.2g} of themselves"
    return (
        "corrected",
        f"{off}; the weights correct that and leave {ess:.0f} effective draws of {n_draws}",
    )


def _unmoved(moved: Moved) -> str:
    return (
        f"no posterior mean moves by more than {max(moved.shift, 1e-3):.2g} of its sd, no sd by "
        f"more than {max(moved.stretch, 1e-3):.2g} of itself"
    )


def judge_point(check: xr.Dataset, shift: float | None) -> tuple[str, str]:
    """Return the verdict on a single point and the reason for it."""
    trouble = _trouble(check)
    if trouble:
        return UNTRUSTED, trouble
    if shift is None:
        error = float(abs(check["log_likelihood_error"]).max())
        verdict = "good" if error <= HARMLESS_SHIFT else UNTRUSTED
        return verdict, (
            f"the log-likelihood is off by {error:.2g}, and the point is no mode from whose "
            "curvature more could be told"
        )
    check.attrs["shift"] = shift
    verdict = "good" if shift <= HARMLESS_SHIFT else UNTRUSTED
    return verdict, f"the mode is {max(shift, 1e-3):.2g} posterior sds from that of the reference"


def stopped_short(distance: float | None) -> str:
    """Say that a point is no mode, given how many posterior sds it is from one, or None."""
    again = "the search stopped short: start pm.find_MAP again from here"
    if distance is None:
        return f"the curvature at this point is not that of a mode; perhaps {again}"
    if distance <= HARMLESS_SHIFT:
        return ""
    return f"this point is {distance:.2g} posterior sds from the mode: {again}"


def _trouble(check: xr.Dataset) -> str | None:
    """Return what makes any weights meaningless, if there is something."""
    n_draws = check.attrs["draws"]
    absent = int((~np.isfinite(check["log_z"].values)).any(axis=-1).sum())
    if absent:
        return (
            f"log Z does not exist at {absent} of {n_draws} draws: the sum over the nodes is not "
            "positive there, or not answered for"
        )
    if check.attrs["doubt"]:
        return check.attrs["doubt"]
    unchecked = check["reference"].values == "none"
    if unchecked.any():
        stated = check["log_z_sd"].values.max(axis=(0, 1)) * check["times"].values
        off = float(stated[unchecked].sum())
        # Without a reference the rule's own word is all there is.
        if not off <= HARMLESS_SHIFT:
            names = ", ".join(check["normalizer"].values[unchecked])
            return (
                f"{names} cannot be checked, for its log summand is known at the nodes only, and "
                f"by its stated sd the log-likelihood may be off by {off:.2g}"
            )
    unsure = np.isinf(check["reference_sd"].values[..., ~unchecked]).any(axis=-1)
    if np.exp(check["log_weight"].values)[unsure].sum() > 0.01:
        return f"the reference does not converge at {int(unsure.sum())} of {n_draws} draws"
    return None


def _cut_short(check: xr.Dataset) -> str | None:
    """Say when a support ends where its summand does not, and the posterior feels it."""
    cut = check["cut"].values
    felt = (np.log1p(cut) * check["times"].values).std(axis=(0, 1))
    worst = int(np.argmax(felt))
    if not felt[worst] > HARMLESS_SHIFT:
        return None
    return (
        f"the support of {check['normalizer'].values[worst]} is cut short: its summand goes on "
        f"beyond the last number, with {cut[..., worst].mean():.2g} of the mass that is summed. "
        "Sum further, or say support=range(...) to pbs.Unnormalized if it really ends there"
    )


def advice_on(check: xr.Dataset, parts: Sequence[Part]) -> str:
    """Say what to do, for the normaliser that does the most harm."""
    with np.errstate(invalid="ignore"):  # of infinite errors
        spread = check["log_likelihood_error_alone"].values.std(axis=(0, 1))
    absent = (~np.isfinite(check["log_z"].values)).any(axis=(0, 1))
    harm = np.where(absent | (check["reference"].values == "none"), np.inf, spread)
    worst = int(np.argmax(np.nan_to_num(harm, nan=np.inf, posinf=np.inf)))
    part = parts[worst]
    return f"{part.name}: {part.found.normalizer.remedy(_facts(check, parts, worst))}"


def notes_on(check: xr.Dataset, parts: Sequence[Part]) -> str:
    """Say what normalisers want to be known that is no error of theirs, if they have a note."""
    notes = []
    for number, part in enumerate(parts):
        note = getattr(part.found.normalizer, "note", None)
        text = note(_facts(check, parts, number)) if note is not None else None
        if text:
            notes.append(f"{part.name}: {text}")
    return "; ".join(notes)


def _facts(check: xr.Dataset, parts: Sequence[Part], number: int) -> Facts:
    seen = check.isel(normalizer=number)
    return Facts(
        compared=parts[number].reference is not None,
        beyond=float(seen["beyond"].max()),
        needed=float(seen["needed"].max()),
        typical=float(seen["needed"].median()),
    )


def report_on(check: xr.Dataset) -> str:
    """Write the verdict as a person would want to read it."""
    attrs = check.attrs
    lines = [f"Normaliser check: {str(attrs['verdict']).upper()}", f"  {attrs['reason']}"]
    for name in check["normalizer"].values:
        part = check.sel(normalizer=name)
        mean = float(part["log_z_error"].mean())
        largest = float(abs(part["log_z_error_max"]).max())
        sd = float(part["log_z_sd"].mean())
        stated = "" if np.isnan(sd) else f", stated sd {sd:.2g}"
        rows = float(part["times"])
        over = f" over {rows:.0f} rows" if rows > 1.5 else ""
        lines.append(
            f"  {name}{over}: log Z is off by {mean:.2g} on average, {largest:.2g} at most{stated} "
            f"(reference: {part['reference'].values!s})"
        )
    error = check["log_likelihood_error"].values
    with np.errstate(invalid="ignore"):  # of infinite errors
        mean, spread = error.mean(), error.std()
    n_draws, available = attrs["draws"], attrs["draws_available"]
    off = f"  log-likelihood: off by {mean:.2g}"
    if n_draws == 1:
        lines.append(off)
    else:
        thinned = f" of {available}" if n_draws < available else ""
        lines.append(f"{off}, sd {spread:.2g} over {n_draws} draws{thinned}")
        lines.append(
            f"  weights: Pareto k {attrs['khat']:.2f} (threshold {attrs['khat_threshold']:.2f}), "
            f"{attrs['ess']:.0f} effective draws"
        )
    if attrs["verdict"] == "corrected":
        lines.append("  what to do: go on with pbs.correct(idata), or better")
        lines.append(f"    {attrs['advice']}")
    elif attrs["advice"]:
        lines.append(f"  what to do: {attrs['advice']}")
    if attrs["fit"]:
        lines += [f"  {line}" for line in str(attrs["fit"]).splitlines()]
        lines.append(f"  {str(attrs['verdict']).upper()} speaks of log Z, not of fit")
    if attrs.get("note"):
        lines.append(f"  note: {attrs['note']}")
    return "\n".join(lines)
