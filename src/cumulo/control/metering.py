"""What instances cost: segments of use, each at one price, from when it was seen to start to when it was seen to end.

A price that changes closes a segment and opens the next. What an engine tells of an end may be of before the last
change: then the segments after it never were, and the one it falls into is cut. A run's cost is the sum over them.
"""

from cumulo.control.live import LiveInstance, LiveRun, Metered
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import described, share_milli
from cumulo.store.batch import Batch


def begin(batch: Batch, run: LiveRun, instance: LiveInstance, at: float) -> None:
    """The instance has started: its first segment opens."""
    _open(batch, run, instance, at)


def reprice(
    batch: Batch, run: LiveRun, instance: LiveInstance, *, price_nano_h: int, purchase: PurchaseOption, at: float
) -> None:
    """From `at` on it costs something else, or is bought as something else; nothing happens where neither changes."""
    if instance.ended or (instance.price_nano_h, instance.purchase) == (price_nano_h, purchase):
        return
    instance.price_nano_h, instance.purchase = price_nano_h, purchase
    batch.instance(instance.id, price_nano_h=price_nano_h, purchase=str(purchase))
    if not instance.metered:
        return
    last = instance.metered[-1]
    if at <= last.since:  # it started a moment ago by its node's clock: all of the segment is at the new price
        instance.metered[-1] = last._replace(price_nano_h=price_nano_h)
        batch.segment(instance.id, last.since, price_nano_h=price_nano_h, purchase=str(purchase))
        return
    instance.metered[-1] = last._replace(until=at)
    batch.segment(instance.id, last.since, ended_at=at)
    _open(batch, run, instance, at)


def end(batch: Batch, run: LiveRun, instance: LiveInstance, at: float) -> None:
    """It ended at `at`: its segments up to then are what it costs, and its run that much more."""
    kept = [piece for piece in instance.metered if piece.since < at] or instance.metered[:1]
    for piece in instance.metered[len(kept) :]:
        batch.drop_segment(instance.id, piece.since)
    for place, piece in enumerate(kept, start=1):
        until = at if place == len(kept) or piece.until is None else piece.until
        run.cost_nano += round((until - piece.since) * piece.price_nano_h / 3600)
        run.rental_nano += round((until - piece.since) * instance.rental_nano_h / 3600)
    if kept:
        batch.segment(instance.id, kept[-1].since, ended_at=at)
        batch.run(run.id, cost_nano=run.cost_nano, rental_nano=run.rental_nano)
    instance.metered = []


def _open(batch: Batch, run: LiveRun, instance: LiveInstance, at: float) -> None:
    instance.metered.append(Metered(at, None, instance.price_nano_h))
    batch.new_usage[instance.id, at] = {
        "instance_id": instance.id,
        "started_at": at,
        "ended_at": None,
        "run_id": run.id,
        "project": run.project,
        "account": run.account,
        "device_model": instance.device_model,
        "device_count": len(instance.devices),
        "gpu_milli": share_milli(instance.slices),
        "gpus": described(instance.device_model, instance.slices),
        "cpus_milli": instance.cpus_milli,
        "price_nano_h": instance.price_nano_h,
        "rental_nano_h": instance.rental_nano_h,
        "purchase": str(instance.purchase),
    }
