"""How a unit is bought, changed while it runs: nothing stops; only what it may be stopped for and costs changes."""

from cumulo.control import metering
from cumulo.control.live import LiveRun, LiveUnit, Picture
from cumulo.control.pricing import instance_price
from cumulo.control.promising import market_of
from cumulo.control.rates import Rates
from cumulo.domain.run import PurchaseOption
from cumulo.placement.purchase import Purchases
from cumulo.store.batch import Batch


def buy_as(
    seen: Picture, batch: Batch, run: LiveRun, unit: LiveUnit, option: PurchaseOption, rates: Rates, now: float
) -> bool:
    """Makes a unit on-demand or spot from `now` on, in place: its attempt goes on, later ones are placed so.

    False, and nothing changes, where it runs as spot on what is reserved: nobody may keep that from who reserved it.
    Instances that are being stopped keep what they are: who makes room for others still does.
    """
    if option is PurchaseOption.ON_DEMAND and not _may_stay(seen, unit, now):
        return False
    unit.purchase = option
    batch.unit(run.id, unit.place, purchase=str(option))
    run.asked.pop(unit.place, None)  # what waits is bought so too
    for instance in unit.instances.values():
        if instance.ended or instance.stop_reason is not None:
            continue
        price_nano_h = instance_price(seen, instance, option, rates)
        metering.reprice(batch, run, instance, price_nano_h=price_nano_h, purchase=option, at=now)
        instance.reservation_id = None
        batch.instance(instance.id, reservation_id=None)
        seen.world.rebuy(instance.id, option)
    return True


def _may_stay(seen: Picture, unit: LiveUnit, now: float) -> bool:
    """Whether what a unit holds is not promised to others."""
    held = [instance for instance in unit.instances.values() if instance.slices]
    if not held or not seen.reservations:
        return True
    devices = {uuid for instance in held for uuid in instance.devices}
    return Purchases(seen.world, market_of(seen), now).firmly(held[0].device_model, devices)
