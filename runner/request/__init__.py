"""From the command line and YAML to requests: options, composition by Hydra, the schema, validation."""
