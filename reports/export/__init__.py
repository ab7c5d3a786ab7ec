"""Tables that other libraries load, made of records: NCCL's tuner plugin, vLLM, SGLang."""
