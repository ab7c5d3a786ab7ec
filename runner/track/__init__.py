"""Records to MLflow: runs, metrics, descriptions, artifacts, saved views."""
