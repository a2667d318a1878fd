"""Transactions that start by themselves: at a time, at intervals, or as cron says.

    schedules = Schedules(store)
    await schedules.put(Schedule("nightly", "close-books", cron="0 2 * * *", timezone="Europe/Berlin"))
    await SchedulerDuty(schedules).run()          # in any number of processes

=============  ==================================================================
``model``      what a schedule is
``timing``     when it fires, also around the change of clocks
``schedules``  kept in the store: put, pause, remove
``duty``       whoever has it starts what is due
=============  ==================================================================
"""

from penstock.transactions.schedules.duty import Round, SchedulerDuty
from penstock.transactions.schedules.model import Schedule, ScheduleInfo
from penstock.transactions.schedules.schedules import Schedules

__all__ = ["Round", "Schedule", "ScheduleInfo", "SchedulerDuty", "Schedules"]
