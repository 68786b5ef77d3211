"""What predictions are worth: metrics with intervals, baselines, the evaluation of a run, its report."""
