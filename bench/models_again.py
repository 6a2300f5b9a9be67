"""What the models of today make of the measurements of bench/models.py: for work on the models.

The fit and the predictions are made again from the file that bench/models.py left; nothing is
measured, so it takes minutes. These predictions are not blind: whoever changes a model has seen what
it is judged by. Only bench/models.py shows how good it is.

--quick: with each calibration run once, which takes half the time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import model_data
from harness import Row, main
from model_cells import cells
from model_verdicts import predicted, results
from penstock.models.fitted import fit_model

DATA = Path(__file__).parent / "data" / "models.json.gz"


def measure(quick: bool, say: Callable[[str], None]) -> tuple[dict[str, Any], list[Row]]:
    measurements = model_data.read(DATA)
    observations = measurements.observations
    if quick:
        names = {one.spec.name: one for one in observations}
        observations = tuple(names.values())
    model = fit_model(
        observations,
        datetime.now(UTC).isoformat(timespec="seconds"),
        sendings=measurements.sendings,
        readings=measurements.readings,
        say=say,
    )
    say("predicting")
    forecasts = predicted(model, cells(measurements.full_per_s, measurements.quick))
    return results(model, forecasts, measurements)


if __name__ == "__main__":
    main("models_again", measure)
