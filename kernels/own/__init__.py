"""A kernel of a user, described by values: PTX or a CuTe DSL function, its launch, and its arguments."""
