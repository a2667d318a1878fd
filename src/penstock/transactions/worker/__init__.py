"""Workers: step functions, and who runs them.

=============  =====================================================================
``app``        step functions and pipelines by name
``outcomes``   what comes out of a step, as data
``paths``      places in data
``fields``     steps that rearrange and check data
``http_calls`` the step that calls a URL
``settling``   writing in batches what workers have to say
``holding``    one transaction under its lease
``context``    what a step function is given
``joining``    steps that are made of other transactions
``performing`` one attempt of one step
``flow``       one transaction from step to step
``places``     who runs, who waits for a place
``worker``     taking, carrying, renewing, stopping
=============  =====================================================================

Each knows those above it in the table.
"""

from penstock.transactions.worker.app import App, StepFunction, step
from penstock.transactions.worker.context import StepContext
from penstock.transactions.worker.worker import Worker, WorkerStatistics

__all__ = ["App", "StepContext", "StepFunction", "Worker", "WorkerStatistics", "step"]
