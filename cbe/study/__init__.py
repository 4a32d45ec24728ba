"""Studies: Ray Tune over Optuna, each trial one training run, everything recorded."""
