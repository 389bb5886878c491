"""Resources may be declared in any module of a program: these two are in `clusters.py`."""

import pulumi
from clusters import evaluation, training

pulumi.export("training", training.master_addr)
pulumi.export("evaluation", evaluation.master_addr)
pulumi.export("price_per_hour", pulumi.Output.all(training.price_per_hour, evaluation.price_per_hour).apply(sum))
