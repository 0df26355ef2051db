"""The experiments of the BayesSum paper, reproduced and corrected.

Kang, Briol, Karvonen and Chen, BayesSum. Errors and rates of the four synthetic cases against
Monte Carlo, importance sampling, Russian roulette, stratified sampling and active BayesSum; the
study of the dimension; repeated against distinct nodes; kernels and decays; calibration; low
rank; CMP on the sales data; a Potts model trained on sequences.

Every number goes into one tidy file with its seed; tables and figures are made from that file::

    python benchmarks/paper.py --quick             # within a minute, small effort
    python benchmarks/paper.py                     # everything
    python benchmarks/paper.py --only potts cmp    # some parts, the others kept as saved
    python benchmarks/paper.py --redraw            # tables and figures from the saved file
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from reproduction import figures, report, studies, training
from reproduction.records import load, save, table

RESULTS = Path(__file__).parent / "results"

#: Each study: what makes its records, seeds in a full and in a quick run.
STUDIES: dict[str, tuple[Callable, int, int]] = {
    "errors": (studies.errors, 50, 3),
    "long designs": (studies.long_designs, 8, 1),
    "dimension": (studies.dimension, 20, 2),
    "repeats": (studies.repeats, 50, 10),
    "ablations": (studies.ablations, 30, 5),
    "calibration": (studies.calibration, 400, 20),
    "low rank": (studies.low_rank, 5, 1),
    "cmp": (training.sales, 20, 3),
    "potts": (training.potts, 10, 1),
}


def merged(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Put new rows in place of old ones of the same study, method and size."""
    keys = ["part", "case", "method", "setting", "n"]
    replaced = set(new[keys].itertuples(index=False, name=None))
    kept = [row not in replaced for row in old[keys].itertuples(index=False, name=None)]
    return pd.concat([old[kept], new], ignore_index=True) if len(old) else new


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little effort, within a minute")
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), help="run these parts only")
    parser.add_argument("--redraw", action="store_true", help="use the saved results as they are")
    parser.add_argument("--results", type=Path, help="the tidy file to read and write")
    arguments = parser.parse_args()
    # A grid of decays that ends at its edge is part of the experiment.
    warnings.filterwarnings("ignore", message="the marginal likelihood is largest")
    path = arguments.results or RESULTS / ("paper_quick.csv" if arguments.quick else "paper.csv")
    frame = load(path)
    if not arguments.redraw:
        for name in arguments.only or STUDIES:
            run, full, quick = STUDIES[name]
            begin = time.perf_counter()
            records = list(run(quick if arguments.quick else full, arguments.quick))
            frame = merged(frame, table(records))
            save(frame, path)
            print(f"{name}: {len(records)} results in {time.perf_counter() - begin:.0f} s")
    report.print_all(frame)
    folder = path.parent / path.stem if arguments.quick else path.parent
    for figure in figures.draw_all(frame, folder):
        print(f"drawn: {figure}")
    print(f"results: {path}")


if __name__ == "__main__":
    main()
